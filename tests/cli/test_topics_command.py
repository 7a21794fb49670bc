"""`ottla topics`, and `ottla broker start --topics`: what exists before the first service starts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli import main
from ottla.testing import Kafka

Run = Callable[..., Result]


@pytest.fixture
def topics(kafka: Kafka) -> Run:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(
            main, ["topics", *arguments], env={"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        )

    return run


def shapes(topics: Run) -> dict[str, tuple[str, str]]:
    rows = [line.split() for line in topics("list").stdout.splitlines()]
    return {name: (partitions, replicas) for name, partitions, replicas in rows}


def test_what_is_created_is_listed_and_what_exists_stays(topics: Run, kafka: Kafka) -> None:
    one, two = kafka.fresh_name("one"), kafka.fresh_name("two")
    created = topics("create", one, two, "--partitions", "3", "--config", "retention.ms=60000")
    assert created.stdout.splitlines() == [f"{one}: created", f"{two}: created"]
    assert shapes(topics)[two] == ("3", "1")
    again = topics("create", one, "--partitions", "5")
    assert again.stdout.splitlines() == [f"{one}: exists, with 3 partitions; not changed"]
    assert shapes(topics)[one] == ("3", "1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "or ders"], "topic: found 'or ders', wanted a name of 1 to 249 letters"),
        (["create", "orders", "--config", "retention.ms"], "--config: found 'retention.ms', wanted NAME=VALUE"),
        (["create", "far-too-safe", "--replication-factor", "7"], "topic far-too-safe was not created"),
        (["list", "--bootstrap-servers", "127.0.0.1:1"], "no Kafka broker answered at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(topics: Run, arguments: list[str], told: str) -> None:
    ended = topics(*arguments)
    assert ended.exit_code == 2
    assert told in ended.output
    assert len(ended.output.splitlines()) == 1


def start_broker(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "broker", "start", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_broker_has_its_topics_before_it_is_ready(tmp_path: Path) -> None:
    for _ in range(2):  # the second time they are there already
        broker = start_broker("--data-dir", str(tmp_path), "--topics", "orders:3,returns", "--topics", "audit:1:1")
        assert broker.stdout is not None
        ready = re.match(r"ready bootstrap=(\S+)", broker.stdout.readline())
        assert ready is not None
        listed = CliRunner().invoke(main, ["topics", "list", "--bootstrap-servers", ready[1]]).stdout
        broker.terminate()
        broker.communicate(timeout=30)
        assert [line.split() for line in listed.splitlines()] == [
            ["audit", "1", "1"],
            ["orders", "3", "1"],
            ["returns", "1", "1"],
        ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("orders:many", "--topics: found 'orders:many', wanted NAME[:PARTITIONS[:REPLICAS]]"),
        ("orders,", "--topics: found ''"),
        ("orders:3:3", "--topics: orders cannot be created: Unable to replicate the partition 3 time(s)"),
        ("or/ders", "--topics: or/ders cannot be created"),
        ("orders:0", "--topics: orders cannot be created"),
    ],
)
def test_a_broker_that_cannot_have_its_topics_does_not_start(given: str, told: str) -> None:
    broker = start_broker("--topics", given)
    ready, said = broker.communicate(timeout=60)
    assert (broker.returncode, ready) == (2, "")
    assert told in said
