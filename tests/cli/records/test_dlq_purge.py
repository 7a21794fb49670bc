"""`ottla dlq purge`: what is deleted is counted first, and only dead letters are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner
from command_output import Run, document, rows
from dead_letters_of_hours import starts, write_letters

from ottla.cli import main
from ottla.testing import Kafka


@pytest.fixture
def ottla(kafka: Kafka) -> Run:
    env = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    return lambda *arguments: CliRunner().invoke(main, ["dlq", *arguments], env=env)


@pytest.fixture
def dead(kafka: Kafka, make_topic: Callable[..., str]) -> str:
    """Six letters in each of two partitions, one an hour, from 1970 on."""
    topic = make_topic("dead-letters", partitions=2, config={"retention.ms": -1})
    write_letters(kafka, topic, count=12)
    return topic


def test_a_dry_run_counts_by_cause_and_deletes_nothing(ottla: Run, kafka: Kafka, dead: str) -> None:
    found = document(ottla("purge", dead, "--dry-run", "--format", "json"), "ottla.dlq.purge/1")
    assert {item["kind"]: item["count"] for item in found["items"]} == {"failed": 6, "malformed": 6}
    assert (found["letters"], [each["new_first_offset"] for each in found["partitions"]]) == (12, [6, 6])
    assert starts(kafka, dead) == [0, 0]


@pytest.mark.parametrize(
    ("before", "left"),
    [(None, [6, 6]), ("0:2,1:3", [2, 3]), ("1:3", [0, 3]), ("-2", [4, 4])],
)
def test_the_letters_before_a_place_are_deleted(
    ottla: Run, kafka: Kafka, dead: str, before: str | None, left: list[int]
) -> None:
    ended = ottla("purge", dead, "--yes", *(() if before is None else ("--before", before)))
    assert rows(ended)
    assert f"{sum(left):,} dead letters deleted" in ended.stderr
    assert starts(kafka, dead) == left


def test_nothing_to_delete_is_said(ottla: Run, dead: str) -> None:
    assert rows(ottla("purge", dead, "--yes"))
    again = ottla("purge", dead, "--yes")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "no dead letters to delete" in again.stderr


def test_a_topic_of_other_records_is_refused(ottla: Run, kafka: Kafka, dead: str) -> None:
    kafka.produce(dead, [b"an order"], partition=1)
    ended = ottla("purge", dead, "--yes")
    assert (ended.exit_code, starts(kafka, dead)) == (2, [0, 0])
    assert "1 of 13 records have no dead letter headers" in ended.stderr
    assert ottla("purge", dead, "--before", "1:6", "--yes").exit_code == 0, "the letters before it go"


def test_without_consent_nothing_is_deleted(ottla: Run, kafka: Kafka, dead: str) -> None:
    ended = ottla("purge", dead)
    assert (ended.exit_code, "--yes" in ended.stderr, starts(kafka, dead)) == (2, True, [0, 0])
    assert ottla("purge", "no-such-topic", "--yes").exit_code == 2
    assert ottla("purge", dead, "--before", "soon", "--yes").exit_code == 2
