"""`ottla cluster` on a cluster of three brokers, and on one where a broker dies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import confluent_kafka
import pytest
from command_output import Run, document, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part, read_facts_file
from ottla.cli.operations.cluster.show import _PARTS
from ottla.testing import wait_until


def test_the_cluster_is_shown(ottla: Run, topic: str) -> None:
    shown = document(ottla("cluster", "show", "--format", "json"), "ottla.cluster.show/1")
    table = ottla("cluster", "show", "--format", "table").stdout
    assert re.search(r"^bytes +[\d.,]+ (B|KiB|MiB)$", table, re.MULTILINE), table
    assert shown["brokers"] == 3
    assert shown["problems"] is None
    assert shown["replicas"] >= 9
    assert {row[0] for row in rows(ottla("cluster", "show"))} >= {"cluster_id", "controller", "partitions"}


def test_brokers_and_disks_are_shown(ottla: Run, topic: str) -> None:
    found = rows(ottla("cluster", "brokers"))
    assert [(row[0], row[6]) for row in found] == [("1", "ok"), ("2", "ok"), ("3", "ok")]
    assert sum(int(row[3]) for row in found) >= 3
    disks = document(ottla("cluster", "disks", "--forecast", "0.05", "--format", "json"), "ottla.cluster.disks/1")
    assert [each["broker"] for each in disks["items"]] == [1, 2, 3]
    assert all(each["error"] is None and "full_in_ms" in each for each in disks["items"])


def test_quorum_and_features_are_shown(ottla: Run) -> None:
    nodes = rows(ottla("cluster", "quorum"))
    assert sorted(row[1] for row in nodes) == ["leader", "voter", "voter"]
    features = {row[0]: row[1:] for row in rows(ottla("cluster", "features"))}
    assert int(features["metadata.version"][0]) <= int(features["metadata.version"][1])


def test_settings_are_set_for_one_broker_and_for_all(ottla: Run, admin: Admin) -> None:
    dry = document(
        ottla("cluster", "set", "2", "message.max.bytes=2MiB", "--dry-run", "--format", "json"), "ottla.cluster.set/1"
    )
    assert [(each["old"], each["new"]) for each in dry["items"]] == [("1048588", "2097152")]
    assert admin.broker_settings(2)["message.max.bytes"].value == "1048588"
    assert ottla("cluster", "set", "2", "message.max.bytes=2MiB", "--yes").exit_code == 0
    assert ottla("cluster", "set", "all", "message.max.bytes=3MiB", "--yes").exit_code == 0
    values = [admin.broker_settings(broker)["message.max.bytes"].value for broker in (1, 2, 3)]
    assert values == ["3145728", "2097152", "3145728"]
    assert rows(ottla("cluster", "settings", "all")) == [
        ["message.max.bytes", "3145728", "DYNAMIC_DEFAULT_BROKER_CONFIG", "ottla cluster set"]
    ]
    assert "message.max.bytes" in {row[0] for row in rows(ottla("cluster", "settings", "2"))}
    ((name, old, _, new, _),) = rows(ottla("cluster", "unset", "2", "message.max.bytes", "--yes"))
    assert (name, old, new) == ("message.max.bytes", "2097152", "3145728"), "what was set for all shows through"
    assert ottla("cluster", "unset", "all", "message.max.bytes", "--yes").exit_code == 0
    assert ottla("cluster", "unset", "all", "message.max.bytes", "--yes").stderr == "nothing to change\n"


def test_open_transactions_are_shown(ottla: Run, cluster: EmbeddedCluster, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"pay-{topic}"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=2)
    producer.flush()
    (found,) = rows(ottla("cluster", "transactions"))
    assert (found[0], found[2], found[6]) == (f"pay-{topic}", "Ongoing", f'["{topic}-2"]')
    assert rows(ottla("cluster", "transactions", "--open-for", "1d")) == []
    producer.abort_transaction()


def test_facts_are_a_file_that_is_read_back(ottla: Run, topic: str) -> None:
    printed = ottla("cluster", "facts")
    Path("facts.json").write_text(printed.stdout)
    facts = read_facts_file("facts.json")
    assert topic in facts.by_topic
    assert set(facts.parts) == set(Part) - {Part.COMMIT_TIMES, Part.SCHEDULES}, "those are records"
    few = json.loads(ottla("cluster", "facts", "--part", "offsets", "--topic", topic).stdout)
    assert [each["name"] for each in few["topics"]] == [topic]
    assert set(few["parts"]) == {"offsets", "topics"}


def test_the_parts_of_the_option_are_those_of_the_facts() -> None:
    assert tuple(_PARTS) == tuple(Part)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["set", "9", "message.max.bytes=1", "--yes"], "found broker 9, wanted one of 1, 2, 3"),
        (["set", "every", "message.max.bytes=1", "--yes"], "found 'every', wanted the id of a broker, or all"),
        (["set", "all", "node.id=7", "--yes"], "write `node.id=7` in server.properties of every broker"),
        (["set", "all", "message.max.bytes=many", "--yes"], "message.max.bytes"),
        (["set", "all", "message.max.bytes=1"], "There is no terminal to ask at"),
        (["settings", "77"], "broker 77 is not in the cluster's metadata"),
        (["transactions", "--open-for", "long"], "--open-for: found 'long', wanted a time as 90s, 15m, 1.5h or 7d"),
        (["elect", "missing"], "missing: the cluster has no such topic"),
        (["show", "-b", "127.0.0.1:1"], "no Kafka broker answered at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(ottla: Run, arguments: list[str], told: str) -> None:
    ended = ottla("cluster", *arguments, "--timeout", "2")
    assert ended.exit_code == 2, ended.output
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_leaders_move_and_are_elected_back_after_a_broker_was_away(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str
) -> None:
    place = admin.describe_topics(topic, parts=())[0].partitions[0]
    preferred = place.replicas[0]
    cluster.kill(preferred)
    wait_until(lambda: admin.describe_topics(topic, parts=())[0].partitions[0].leader not in (preferred, None), 30)
    shown = ottla("cluster", "brokers", "--format", "json")
    states = {each["broker"]: each["state"] for each in document(shown, "ottla.cluster.brokers/1")["items"]}
    assert states.get(preferred) in (None, "fenced", "unreachable")
    problems = document(ottla("cluster", "show", "--format", "json"), "ottla.cluster.show/1")["problems"]
    assert "under-replicated" in problems
    assert ottla("topics", "list", topic).stdout.split("\t")[3].endswith("under-replicated\n")
    cluster.start_broker(preferred)
    wait_until(lambda: all(len(each.in_sync) == 3 for each in admin.describe_topics(topic, parts=())[0].partitions), 30)
    (first, *_) = rows(ottla("cluster", "elect", topic, "--dry-run"))
    assert first == [topic, "0", first[2], str(preferred)]
    with cluster.faults.add(api="ELECT_LEADERS", disconnect=True, after_apply=True, count=1):
        lost = ottla("cluster", "elect", topic, "--yes")
    assert lost.exit_code == 1
    assert "whether ELECT_LEADERS was done is not known" in lost.stderr
    wait_until(lambda: rows(ottla("cluster", "elect", topic)) == [], 30)
    assert admin.describe_topics(topic, parts=())[0].partitions[0].leader == preferred
