"""The commands of operations do the same on Apache Kafka as on the embedded broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import Result
from command_output import document, rows

from ottla.admin import Admin, Part, read_facts_file

pytestmark = pytest.mark.client_contract

Run = Callable[..., Result]

_numbers = count(1)


@pytest.fixture
def topic(ottla: Run, bootstrap_servers: str) -> str:
    """Three partitions, ten records in the first."""
    name = f"commands-{os.getpid()}-{next(_numbers)}"
    assert rows(ottla("topics", "create", name, "-p", "3", "-r", "1", "segment.bytes=2MiB"))
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(10):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    return name


def test_a_topic_is_seen_and_changed(ottla: Run, topic: str) -> None:
    assert rows(ottla("topics", "list", topic)) == [[topic, "3", "1", ""]]
    assert rows(ottla("topics", "list", topic, "--sort", "records"))[0][3] == "10"
    shown = document(ottla("topics", "show", topic, "--format", "json"), "ottla.topics.show/1")
    assert (shown["records"], shown["problems"]) == (10, None)
    assert shown["bytes"] > 0
    assert shown["settings"]["segment.bytes"]["value"] == "2097152"

    assert [row[:4] for row in rows(ottla("topics", "set", topic, "retention.ms=1h", "--dry-run"))] == [
        ["retention.ms", "604800000", "DEFAULT_CONFIG", "3600000"]
    ]
    assert rows(ottla("topics", "set", topic, "retention.ms=1h", "--yes"))
    unset = rows(ottla("topics", "unset", topic, "segment.bytes", "--yes"))
    assert unset == [["segment.bytes", "2097152", "DYNAMIC_TOPIC_CONFIG", "1073741824", "DEFAULT_CONFIG"]]
    assert ottla("topics", "set", topic, "retention.ms=soon", "--yes").exit_code == 2
    assert ottla("topics", "add-partitions", topic, "4", "--yes").exit_code == 0
    assert ottla("topics", "add-partitions", topic, "2", "--yes").exit_code == 2
    again = ottla("topics", "create", topic, "-p", "3")
    assert (again.exit_code, "with 4 partitions and not 3" in again.stdout) == (1, True)
    assert ottla("topics", "set-replicas", topic, "2", "--yes").exit_code == 2, "there is one broker"
    assert "nothing to change" in ottla("topics", "set-replicas", topic, "1").stderr


def test_records_are_trimmed_and_the_topic_deleted(ottla: Run, topic: str) -> None:
    assert rows(ottla("topics", "delete-records", topic, "--before", "0:4", "--yes")) == [["0", "0", "4", "4"]]
    assert rows(ottla("topics", "delete-records", topic, "--before", "latest", "--yes"))[0] == ["0", "4", "10", "6"]
    assert rows(ottla("topics", "delete", topic, "--yes"))[0][:3] == [topic, "3", "0"]
    assert rows(ottla("topics", "list", topic)) == []
    assert ottla("topics", "delete", topic, "--yes").exit_code == 2


def test_a_group_is_set_and_put_back(ottla: Run, topic: str) -> None:
    group = f"group-{topic}"
    first = ottla("groups", "reset", group, "--to", "4", "--topic", f"{topic}:0", "--yes", "--undo", "first.json")
    assert first.exit_code == 0, first.output
    assert rows(ottla("groups", "lag", group))[0][:7] == [group, topic, "0", "4", "10", "6", "0"]
    aged = document(ottla("groups", "lag", group, "--age", "--format", "json"), "ottla.groups.lag/1")
    assert aged["items"][0]["age_ms"] >= 0
    assert rows(ottla("groups", "list", group, "--lagging"))[0][2] == "Empty"
    assert rows(ottla("groups", "reset", group, "--to", "-1h", "--yes", "--undo", "second.json"))[0][2:4] == ["4", "0"]
    assert ottla("groups", "restore", "second.json", "--yes", "--undo", "third.json").exit_code == 0
    assert rows(ottla("groups", "lag", group))[0][3] == "4"
    assert ottla("groups", "copy", group, f"{group}-2", "--yes").exit_code == 0
    assert rows(ottla("groups", "lag", f"{group}-2"))[0][3] == "4"
    assert ottla("groups", "delete-offsets", group, "--topic", topic, "--yes", "--undo", "fourth.json").exit_code == 0
    assert ottla("groups", "restore", "fourth.json", "--yes").exit_code == 0
    assert ottla("groups", "delete", group, f"{group}-2", "--yes").exit_code == 0
    assert ottla("groups", "show", group).exit_code == 2


def test_the_cluster_is_seen_and_changed(ottla: Run, topic: str) -> None:
    shown = document(ottla("cluster", "show", "--format", "json"), "ottla.cluster.show/1")
    assert (shown["brokers"], shown["problems"]) == (1, None)
    ((broker, _, _, leaders, _, size, state),) = rows(ottla("cluster", "brokers"))
    assert state == "ok"
    assert int(leaders) >= 3
    assert int(size) > 0
    assert int(rows(ottla("cluster", "disks"))[0][4]) > 0
    assert [row[1] for row in rows(ottla("cluster", "quorum"))] == ["leader"]
    assert "metadata.version" in {row[0] for row in rows(ottla("cluster", "features"))}
    try:
        set_all = rows(ottla("cluster", "set", "all", "message.max.bytes=2MiB", "--yes"))
        assert set_all[0][0] == "message.max.bytes"
        assert ["message.max.bytes", "2097152"] in [row[:2] for row in rows(ottla("cluster", "settings", "all"))]
    finally:  # other tests read the defaults of this broker
        assert ottla("cluster", "unset", "all", "message.max.bytes", "--yes").exit_code == 0
    static = ottla("cluster", "set", broker, "node.id=9", "--yes")
    assert (static.exit_code, "in server.properties" in static.stderr) == (2, True)
    assert rows(ottla("cluster", "elect")) == []
    assert rows(ottla("cluster", "transactions", "--open-for", "1d")) == []


def test_the_doctor_reads_everything(ottla: Run, topic: str) -> None:
    Path("facts.json").write_text(ottla("cluster", "facts").stdout)
    facts = read_facts_file("facts.json")
    unread = {each.part for each in facts.not_read}
    assert unread <= {Part.ACLS}, facts.not_read
    found = document(ottla("doctor", "--facts", "facts.json", "--format", "json"), "ottla.doctor/1")
    assert {each["id"] for each in found["not_checked"]} <= {
        *("MSG03", "DLQ03", "APP01", "APP02"),  # of a service
        "DRF01",  # of declarations
        *("BAL05", "MOV01", "GRP01", "GRP05"),  # of samples
        "SEC01",
        *("GRP03", "SCH01"),  # read records
    }


def test_commits_of_a_group_are_dated(ottla: Run, bootstrap_servers: str, topic: str) -> None:
    """What `doctor --deep` reads of `__consumer_offsets`, as Kafka writes it."""
    group = f"group-{topic}"
    started_ms = time.time_ns() // 1_000_000
    assert ottla("groups", "reset", group, "--to", "4", "--topic", f"{topic}:0", "--yes").exit_code == 0
    with Admin(bootstrap_servers) as admin:
        facts = admin.facts({Part.GROUPS, Part.GROUP_OFFSETS, Part.COMMIT_TIMES})
    assert facts.not_read == ()
    (found,) = (each for each in facts.groups if each.group_id == group)
    (offset,) = found.offsets or ()
    assert offset.kept_since_ms is not None
    assert started_ms - 60_000 < offset.kept_since_ms < time.time_ns() // 1_000_000 + 60_000
