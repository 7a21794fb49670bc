"""The commands that read and write records do the same on Apache Kafka as on the embedded broker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import count

import pytest
from apache_kafka import wanted
from click.testing import Result
from command_output import document, rows

from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter

pytestmark = pytest.mark.client_contract

Run = Callable[..., Result]

_numbers = count(1)
_START_MS = 1_700_000_000_000
FOR_EVER = (
    ("retention.ms=-1", "message.timestamp.before.max.ms=9223372036854775807")
    if (wanted() or "4") >= "3.6"  # the setting came with KIP-937; before it any time is taken
    else ("retention.ms=-1",)
)


@pytest.fixture
def topic(ottla: Run) -> str:
    """Two partitions without records."""
    name = f"records-{os.getpid()}-{next(_numbers)}"
    assert rows(ottla("topics", "create", name, "-p", "2", "-r", "1", *FOR_EVER))
    return name


def lines(ottla: Run, *arguments: str) -> list[dict[str, object]]:
    ended = ottla("consume", *arguments, "--format", "json")
    assert ended.exit_code == 0, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


def whole(ottla: Run, topic: str) -> list[tuple[object, ...]]:
    """All that a copy keeps of each record."""
    names = ("partition", "timestamp", "key", "key_base64", "value", "value_base64", "headers")
    return sorted(tuple(map(repr, map(each.get, names))) for each in lines(ottla, topic))


@pytest.fixture
def filled(ottla: Run, topic: str) -> str:
    """A hundred records, with headers that repeat, bytes that are no text, and a tombstone."""
    given = [
        {
            "partition": number % 2,
            "timestamp": _START_MS + number * 1000,
            "key": f"k{number}",
            "value": json.dumps({"total": number}),
            "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}],
        }
        for number in range(98)
    ]
    given += [{"partition": 0, "key": "gone", "value": None}, {"partition": 1, "key": None, "value_base64": "/wA="}]
    text = "\n".join(map(json.dumps, given))
    ended = ottla("produce", topic, "--format", "json", input=text)
    assert (ended.exit_code, len(ended.stdout.splitlines())) == (0, 100), ended.output
    return topic


def test_lines_are_written_and_read(ottla: Run, topic: str) -> None:
    ended = ottla("produce", topic, "-p", "1", "-K", ":", "-H", "from=here", input="a:one\nb:two\n")
    assert (ended.exit_code, ended.stdout) == (0, "1@0\n1@1\n"), ended.output
    assert [row[:2] + row[3:5] for row in rows(ottla("consume", topic))] == [
        ["1", "0", "a", "one"],
        ["1", "1", "b", "two"],
    ]
    assert ottla("produce", topic, "-k", "a", "--null", "-p", "1").stdout == "1@2\n"
    assert lines(ottla, topic, "--key", "a")[-1]["value"] is None
    assert ottla("produce", topic, "-p", "7", input="x\n").exit_code == 2
    large = ottla("produce", topic, "--compression", "none", input="x" * 3_000_000)
    assert (large.exit_code, "MESSAGE_TOO_LARGE" in large.stderr or "max.message.bytes" in large.stderr) == (2, True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_taken(ottla: Run, topic: str, codec: str) -> None:
    text = "\n".join(f"value {number}" for number in range(500))
    assert ottla("produce", topic, "-p", "0", "--compression", codec, "-q", input=text).exit_code == 0
    assert [row[4] for row in rows(ottla("consume", topic))] == text.split("\n")


def test_places_and_filters_select(ottla: Run, filled: str) -> None:
    assert len(lines(ottla, filled)) == 100
    assert len(lines(ottla, filled, "-n", "7")) == 7
    assert [each["offset"] for each in lines(ottla, filled, "-p", "0", "--from", "-2")] == [48, 49]
    assert [each["offset"] for each in lines(ottla, filled, "--from", "0:10", "--until", "0:13")] == [10, 11, 12]
    since = lines(ottla, filled, "-p", "0", "--from", "2023-11-14T22:14:50")
    assert [each["key"] for each in since][:2] == ["k90", "k92"]
    assert [each["key"] for each in lines(ottla, filled, "--where", "value.total >= 97")] == ["k97"]
    assert len(lines(ottla, filled, "--header", "a=1")) == 98
    assert [each["key"] for each in lines(ottla, filled, "--grep", '"total": 42')] == ["k42"]
    assert ottla("consume", filled, "--from", "9:0").exit_code == 2
    assert ottla("consume", f"{filled}-gone").exit_code == 2


def test_a_topic_is_copied_byte_for_byte(ottla: Run, filled: str) -> None:
    through, direct = f"{filled}-through", f"{filled}-direct"
    assert rows(ottla("topics", "create", through, "-p", "2", "-r", "1", *FOR_EVER))
    shown = ottla("consume", filled, "--format", "json").stdout
    assert ottla("produce", through, "--format", "json", "-q", input=shown).exit_code == 0
    assert whole(ottla, through) == whole(ottla, filled)
    assert len(rows(ottla("topics", "copy", filled, direct, "--yes"))) == 2
    assert whole(ottla, direct) == whole(ottla, filled)
    settings = document(ottla("topics", "show", direct, "--format", "json"), "ottla.topics.show/1")["settings"]
    assert settings["retention.ms"]["value"] == "-1"
    assert ottla("topics", "copy", filled, direct, "--yes").exit_code == 2, "it has records"


def test_dead_letters_are_listed_sent_back_and_purged(ottla: Run, topic: str) -> None:
    dead = f"{topic}.dead-letters"
    assert rows(ottla("topics", "create", dead, "-p", "1", "-r", "1"))
    given = []
    for number in range(3):
        letter = build_dead_letter(
            topic=topic,
            partition=0,
            offset=number,
            timestamp_ms=_START_MS,
            key=b"k%d" % number,
            value=b"v%d" % number,
            headers=[],
            reason=DeadLetterReason(
                kind="failed",
                error_type="ValueError",
                message="wrong",
                stack_trace="",
                attempts=1,
                group="billing",
                dead_lettered_ms=_START_MS,
            ),
        )
        headers = [{"key": name, "value": None if value is None else value.decode()} for name, value in letter.headers]
        given.append(json.dumps({"key": f"k{number}", "value": f"v{number}", "headers": headers}))
    assert ottla("produce", dead, "--format", "json", "-q", input="\n".join(given)).exit_code == 0
    assert [dead, "1", "3"] in [row[:3] for row in rows(ottla("dlq", "list"))]
    listed = document(ottla("dlq", "list", dead, "--format", "json"), "ottla.dlq.list/1")
    assert (listed["letters"], listed["items"][0]["origin"]) == (3, topic)
    shown = document(ottla("dlq", "show", dead, "0:1", "--format", "json"), "ottla.dlq.show/1")
    assert shown["at"] == "0:1"
    assert ottla("dlq", "redrive", dead, "--yes").exit_code == 0
    assert sorted(str(each["value"]) for each in lines(ottla, topic)) == ["v0", "v1", "v2"]
    assert ottla("dlq", "purge", dead, "--before", "0:2", "--yes").exit_code == 0
    assert document(ottla("dlq", "list", dead, "--format", "json"), "ottla.dlq.list/1")["letters"] == 1
