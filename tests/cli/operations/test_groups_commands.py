"""`ottla groups` on a cluster of three brokers: lag, resets that can be undone, and groups that are gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from command_output import Run, document, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.testing import Kafka, wait_until


@pytest.fixture
def group(cluster: EmbeddedCluster, admin: Admin, topic: str) -> str:
    """A group at 4 of 10 records of partition 0, at the end of partition 1, and nowhere in partition 2."""
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce(topic, [b"x"] * 10, partition=0, timestamp_ms=1_700_000_000_123)
    kafka.produce(topic, [b"x"] * 3, partition=1)
    name = f"group-of-{topic}"
    admin.apply_reset(admin.plan_reset(name, to=4, topics={topic: [0]}))
    admin.apply_reset(admin.plan_reset(name, to="latest", topics={topic: [1]}))
    return name


def committed(admin: Admin, group: str) -> dict[int, int]:
    (fact,) = admin.describe_groups(group)
    return {each.partition: each.offset for each in fact.offsets or ()}


@contextmanager
def member_of(cluster: EmbeddedCluster, admin: Admin, group: str, topic: str) -> Iterator[None]:
    """A member of the group, as long as the block lasts."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "client.id": "clerk"}
    consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe([topic])

    def is_joined() -> bool:
        consumer.poll(0.05)
        return admin.describe_groups(group)[0].state == "Stable"

    try:
        wait_until(is_joined, timeout_s=30)
        yield
    finally:
        consumer.close()


def test_groups_are_listed_with_their_lag(ottla: Run, group: str) -> None:
    ((name, kind, state, _),) = rows(ottla("groups", "list", group))
    assert (name, kind, state) == (group, "Classic", "Empty")
    assert rows(ottla("groups", "list", group, "--state", "stable")) == []
    assert [row[4:] for row in rows(ottla("groups", "list", group, "--lag"))] == [["6", "0"]]
    (item,) = document(ottla("groups", "list", group, "--lagging", "--format", "json"), "ottla.groups.list/1")["items"]
    assert (item["lag"], item["lost"]) == (6, 0)
    without = ("--exclude", f"{group}?", "--exclude", f"{group[:-1]}*")
    assert rows(ottla("groups", "list", group, "--lagging", *without)) == []
    assert rows(ottla("groups", "lag", group, "--above", "1", *without)) == []
    assert rows(ottla("groups", "list", group, "--lagging", *without[:2]))
    assert rows(ottla("groups", "reset", group, "--to", "latest", "--yes"))
    assert rows(ottla("groups", "list", group, "--lagging")) == []


def test_a_group_is_shown_with_its_members(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, group: str, topic: str
) -> None:
    with member_of(cluster, admin, group, topic):
        shown = document(ottla("groups", "show", group, "--format", "json"), "ottla.groups.show/1")
        assert (shown["state"], shown["members"], shown["lag"]) == ("Stable", 1, 6)
        assert shown["member_list"][0]["client"] == "clerk"
        assert len(shown["member_list"][0]["partitions"]) == 3
        assert [each["committed"] for each in shown["partitions"]] == [4, 3, None]
        (member,) = rows(ottla("groups", "show", group, "--members"))
        assert member[2] == "clerk"
        table = ottla("groups", "show", group, "--members", "--format", "table").stdout
    assert "clerk" in table
    assert "none" in table, "nothing committed is not 0"


def test_lag_is_shown_by_partition_with_its_age_and_what_is_lost(
    ottla: Run, admin: Admin, group: str, topic: str
) -> None:
    first, second = rows(ottla("groups", "lag", group))
    assert first == [group, topic, "0", "4", "10", "6", "0", "", "", "false"]
    assert second[5] == "0"
    items = document(ottla("groups", "lag", group, "--age", "--format", "json"), "ottla.groups.lag/1")["items"]
    assert items[0]["unread_since"] == "2023-11-14T22:13:20.123Z"
    assert items[0]["age_ms"] > 365 * 86_400_000
    assert (items[1]["unread_since"], items[1]["age_ms"]) == (None, None)

    assert ottla("topics", "delete-records", topic, "--before", "0:7", "--yes").exit_code == 0
    assert rows(ottla("groups", "lag", group))[0][5:7] == ["3", "3"], "3 unread are gone"
    behind = ottla("groups", "lag", group, "--above", "2")
    assert (behind.exit_code, behind.stderr) == (1, f"{group} is 3 records behind, more than 2\n")
    assert ottla("groups", "lag", group, "--above", "3").exit_code == 0
    watched = rows(ottla("groups", "lag", group, "--watch", "0.01", "--times", "3"))
    assert len(watched) == 3 * 2
    assert group in {row[0] for row in rows(ottla("groups", "lag"))}, "all groups if none is named"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to", "earliest"], {0: 0, 1: 0}),
        (["--to", "latest"], {0: 10, 1: 3}),
        (["--to", "2023-11-14T22:13:21"], {0: 10, 1: 0}),
        (["--to", "-1h"], {0: 10, 1: 0}),
        (["--shift", "-2"], {0: 2, 1: 1}),
        (["--to", "7", "--topic", "TOPIC:0,2"], {0: 7, 1: 3, 2: 0}),
        (["--to", "earliest", "--topic", "TOPIC"], {0: 0, 1: 0, 2: 0}),
    ],
)
def test_a_reset_goes_where_it_is_sent_and_back(
    ottla: Run, admin: Admin, group: str, topic: str, arguments: list[str], expected: dict[int, int]
) -> None:
    given = ["groups", "reset", group, *[each.replace("TOPIC", topic) for each in arguments]]
    assert ottla(*given, "--dry-run").exit_code == 0
    assert not list(Path().iterdir()), "a dry run writes nothing"
    assert committed(admin, group) == {0: 4, 1: 3}
    done = ottla(*given, "--yes")
    assert done.exit_code == 0, done.output
    assert committed(admin, group) == expected
    (file,) = Path().glob("*.json")
    assert f"ottla groups restore {file}" in done.stderr
    assert ottla("groups", "restore", str(file), "--yes").exit_code == 0
    assert committed(admin, group) == {0: 4, 1: 3}


def test_a_reset_says_what_the_log_does_not_have(ottla: Run, group: str) -> None:
    found = document(
        ottla("groups", "reset", group, "--to", "8", "--dry-run", "--format", "json"), "ottla.groups.reset/1"
    )
    assert [(each["new"], each["records"], each["note"]) for each in found["items"]] == [
        (8, -4, None),
        (3, 0, "the log has 0 to 3"),
    ]
    assert found["group"] == group
    same = ottla("groups", "reset", group, "--shift", "0", "--yes")
    assert (same.exit_code, same.stderr) == (0, "nothing to change\n")


def test_a_group_with_members_is_left_alone(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, group: str, topic: str
) -> None:
    with member_of(cluster, admin, group, topic):
        for refused in (
            ottla("groups", "reset", group, "--to", "earliest", "--yes"),
            ottla("groups", "delete", group, "--yes"),
            ottla("groups", "delete-offsets", group, "--topic", topic, "--yes"),
        ):
            assert refused.exit_code == 2, refused.output
            assert "GroupInUse" in refused.stderr
        assert "clerk at " in ottla("groups", "reset", group, "--to", "earliest", "--dry-run").stderr
        assert committed(admin, group) == {0: 4, 1: 3}


def test_a_copy_goes_on_where_the_other_stopped(ottla: Run, admin: Admin, group: str) -> None:
    assert ottla("groups", "copy", group, f"{group}-2", "--yes").exit_code == 0
    assert committed(admin, f"{group}-2") == committed(admin, group)


def test_a_deleted_group_can_be_restored(ottla: Run, admin: Admin, group: str, topic: str) -> None:
    ((_, _, state, members, offsets),) = rows(ottla("groups", "delete", group, "--dry-run"))
    assert (state, members, offsets) == ("Empty", "0", f'["{topic} (2 partitions)"]')
    assert ottla("groups", "delete", group, "--yes").exit_code == 0
    assert ottla("groups", "show", group).exit_code == 2
    (file,) = Path().glob("*.json")
    assert ottla("groups", "restore", str(file), "--yes").exit_code == 0
    assert committed(admin, group) == {0: 4, 1: 3}
    partly = ottla("groups", "delete", group, "no-such-group", "--yes", "--no-undo")
    assert partly.exit_code == 1
    assert f"done: {group}" in partly.stderr
    assert "UnknownGroup: group no-such-group" in partly.stderr


def test_a_refused_deletion_has_nothing_to_restore(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, group: str, topic: str
) -> None:
    with member_of(cluster, admin, group, topic):
        for refused in (
            ottla("groups", "delete", group, "--yes"),
            ottla("groups", "delete-offsets", group, "--topic", f"{topic}:0", "--yes"),
        ):
            assert refused.exit_code == 2, refused.stderr
            assert "GroupInUse" in refused.stderr
            assert "restore" not in refused.stderr
    assert "ottla groups restore group-of-" in ottla("groups", "delete", group, "--yes").stderr


def test_offsets_of_which_some_are_deleted_can_be_restored(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, group: str, topic: str
) -> None:
    read = f"{topic}-read"
    admin.create_topics({read: TopicSpec(partitions=1, replication_factor=1)})
    admin.apply_reset(admin.plan_reset(group, to="earliest", topics={read: [0]}))
    with member_of(cluster, admin, group, read):
        ended = ottla("groups", "delete-offsets", group, "--topic", f"{topic}:0", "--topic", read, "--yes")
    assert ended.exit_code == 1, ended.stderr
    assert f"done: {topic}-0\n" in ended.stderr
    assert f"GroupInUse: group {group} has members that subscribe to {read}" in ended.stderr
    assert f"ottla groups restore {group}-offsets" in ended.stderr


def test_a_restore_of_which_only_the_first_step_is_made_can_be_undone(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, group: str, topic: str
) -> None:
    assert (
        ottla("groups", "reset", group, "--to", "latest", "--topic", topic, "--yes", "--undo", "u.json").exit_code == 0
    )
    with cluster.faults.add(api="OFFSET_COMMIT", group=group, error="GROUP_AUTHORIZATION_FAILED"):
        ended = ottla("groups", "restore", "u.json", "--yes", "--undo", "again.json")
        refused = ottla("groups", "reset", group, "--to", "earliest", "--yes", "--undo", "not.json")
    assert (ended.exit_code, refused.exit_code) == (1, 2), ended.stderr + refused.stderr
    assert f"done: {topic}-2\n" in ended.stderr
    assert ended.stderr.count("GROUP_AUTHORIZATION_FAILED") == 1
    assert "ottla groups restore again.json" in ended.stderr
    assert "ottla groups restore" not in refused.stderr


def test_what_is_forgotten_can_be_restored(ottla: Run, admin: Admin, group: str, topic: str) -> None:
    assert rows(ottla("groups", "delete-offsets", group, "--topic", f"{topic}:0", "--dry-run")) == [[topic, "0", "4"]]
    assert (
        ottla("groups", "delete-offsets", group, "--topic", f"{topic}:0", "--yes", "--undo", "kept.json").exit_code == 0
    )
    assert committed(admin, group) == {1: 3}
    assert ottla("groups", "restore", "kept.json", "--yes").exit_code == 0
    assert committed(admin, group) == {0: 4, 1: 3}
    nothing = ottla("groups", "delete-offsets", group, "--topic", "other", "--yes")
    assert (nothing.exit_code, nothing.stderr) == (0, "the group has no committed offset for it\n")


def test_an_undo_file_is_checked_and_never_written_over(ottla: Run, admin: Admin, group: str) -> None:
    Path("kept.json").write_text("{}")
    refused = ottla("groups", "reset", group, "--to", "earliest", "--undo", "kept.json", "--yes")
    assert (refused.exit_code, Path("kept.json").read_text()) == (2, "{}")
    assert "never overwrites another" in refused.stderr
    nowhere = ottla("groups", "reset", group, "--to", "earliest", "--undo", "no/such/folder.json", "--yes")
    assert nowhere.exit_code == 2
    assert committed(admin, group) == {0: 4, 1: 3}, "without the file nothing is changed"

    saved = json.loads('{"schema": "ottla.group-offsets/1", "group_id": "g", "cluster_id": "other", "at_ms": 1}')
    Path("other.json").write_text(json.dumps(saved | {"offsets": []}))
    for file, told in (("kept.json", "wanted the schema"), ("missing.json", "No such file"), ("other.json", "")):
        restored = ottla("groups", "restore", file, "--yes")
        assert restored.exit_code == 2
        assert told in restored.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "missing"], "group missing: the cluster has no such group"),
        (["lag", "missing"], "group missing: the cluster has no such group"),
        (["delete", "missing", "--yes"], "missing: the cluster has no such group"),
        (["reset", "missing", "--to", "earliest"], "group missing: the cluster has no such group"),
        (["reset", "missing", "--to", "earliest", "--topic", "no-topic"], "no-topic: the cluster has no such topic"),
        (["reset", "GROUP"], "found neither, wanted one of --to and --shift"),
        (["reset", "GROUP", "--to", "1", "--shift", "1"], "found both, wanted one of --to and --shift"),
        (["reset", "GROUP", "--to", "-5"], "found '-5', wanted earliest, latest"),
        (["reset", "GROUP", "--to", "1960-01-01", "--yes"], "found '1960-01-01', wanted a time since 1970"),
        (["reset", "GROUP", "--to", "earliest", "--topic", "TOPIC:9"], "TOPIC-9: the topic has 3 partitions"),
        (["reset", "GROUP", "--to", "earliest", "--topic", "TOPIC:2-1"], "wanted the smaller first"),
        (["reset", "GROUP", "--to", "earliest", "--topic", "TOPIC:x"], "found 'x' in 'TOPIC:x', wanted partitions as"),
        (["reset", "GROUP", "--to", "earliest"], "There is no terminal to ask at: --yes agrees"),
        (["copy", "missing", "other", "--yes"], "group missing: the cluster has no such group"),
        (["list", "-b", "127.0.0.1:1"], "no Kafka broker answered at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_exit_code_2(ottla: Run, group: str, topic: str, arguments: list[str], told: str) -> None:
    given = [each.replace("GROUP", group).replace("TOPIC", topic) for each in arguments]
    ended = ottla("groups", *given)
    assert ended.exit_code == 2, ended.output
    assert told.replace("TOPIC", topic) in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


@pytest.mark.representative("DELETE_GROUPS-arguments2")
@pytest.mark.parametrize(
    ("api", "arguments"),
    [
        ("OFFSET_COMMIT", ["reset", "GROUP", "--to", "earliest"]),
        ("OFFSET_DELETE", ["delete-offsets", "GROUP", "--topic", "TOPIC"]),
        ("DELETE_GROUPS", ["delete", "GROUP"]),
    ],
)
def test_a_broker_that_goes_away_in_a_change_is_asked_again(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, group: str, topic: str, api: str, arguments: list[str]
) -> None:
    given = ["groups", *[each.replace("GROUP", group).replace("TOPIC", topic) for each in arguments], "--yes"]
    with cluster.faults.add(api=api, disconnect=True, count=1) as lost:
        ended = ottla(*given)
        assert lost.hits == 1
    assert ended.exit_code == 0, ended.output

    (file,) = Path().glob("*.json")
    assert ottla("groups", "restore", str(file), "--yes").exit_code == 0
    assert committed(admin, group) == {0: 4, 1: 3}
    with cluster.faults.add(api=api, disconnect=True) as dead:
        ended = ottla(*given, "--timeout", "1")
        assert dead.hits
    assert ended.exit_code == 1, ended.output
    assert "BrokerUnavailable" in ended.stderr
    assert "ottla groups restore" in ended.stderr, "what was committed before is kept"
    assert committed(admin, group) == {0: 4, 1: 3}


@pytest.mark.parametrize("api", ["DESCRIBE_GROUPS", "OFFSET_FETCH"])
def test_a_coordinator_that_moves_is_waited_for(ottla: Run, cluster: EmbeddedCluster, group: str, api: str) -> None:
    with cluster.faults.add(api=api, group=group, error="NOT_COORDINATOR", count=2) as moving:
        assert rows(ottla("groups", "lag", group))[0][3] == "4"
        assert moving.hits == 2
    with cluster.faults.add(api=api, group=group, error="NOT_COORDINATOR"):
        gone = ottla("groups", "lag", group, "--timeout", "0.5")
    assert (gone.exit_code, "NOT_COORDINATOR" in gone.stderr) == (2, True)


def test_a_marker_of_a_transaction_is_no_lag(ottla: Run, cluster: EmbeddedCluster, topic: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = confluent_kafka.Producer({**settings, "transactional.id": f"id-{topic}", "log_level": 0})
    producer.init_transactions(10)
    producer.begin_transaction()
    for value in (b"1", b"2"):
        producer.produce(topic, value, partition=2)
    producer.commit_transaction(10)
    group = f"markers-{topic}"
    consumer = confluent_kafka.Consumer({**settings, "group.id": group, "log_level": 0})
    place = confluent_kafka.TopicPartition(topic, 2)
    end = consumer.get_watermark_offsets(place, timeout=10)[1]
    for left, records in ((1, "0"), (2, "1"), (3, "2")):
        place.offset = end - left
        consumer.commit(offsets=[place], asynchronous=False)
        assert [row[5] for row in rows(ottla("groups", "lag", group))] == [records]
    consumer.close()
    assert ottla("groups", "lag", group, "--above", "2").exit_code == 0


def test_many_groups_are_reset_and_each_can_be_restored(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str, name: str
) -> None:
    groups = [f"{name}.a", f"{name}.b"]
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce(topic, [b"1", b"2"], partition=0)
    for group in (*groups, f"{name}-other"):
        admin.apply_reset(admin.plan_reset(group, to="latest", topics={topic: None}))
    pattern = ("--matching", f"{name}\\..*", "--to", "earliest")
    shown = document(ottla("groups", "reset", *pattern, "--dry-run", "--format", "json"), "ottla.groups.reset/1")
    assert {each["group"] for each in shown["items"]} == set(groups)
    asked = ottla("groups", "reset", *pattern)
    assert (asked.exit_code, "Set the offsets of 2 groups?" in asked.stderr) == (2, True)
    done = ottla("groups", "reset", *pattern, "--yes")
    assert (done.exit_code, "2 groups: offsets set" in done.stderr) == (0, True), done.output
    assert {each.offset for group in admin.describe_groups(*groups) for each in group.offsets or ()} == {0}
    (other,) = admin.describe_groups(f"{name}-other")
    assert any(each.offset for each in other.offsets or ())
    files = re.findall(r"ottla groups restore (\S+)", done.stderr)
    assert len(files) == 2
    assert rows(ottla("groups", "restore", files[0], "--yes"))
    with member_of(cluster, admin, groups[0], topic):
        refused = ottla("groups", "reset", "--matching", f"{name}\\..*", "--to", "1", "--yes")
        assert (refused.exit_code, "has members; stop them first" in refused.stderr) == (2, True)
    assert committed(admin, groups[1])[0] == 0, "none is set while one has members"
    again = ottla("groups", "reset", "--matching", f"{name}.b", "--to", "earliest", "--yes")
    assert again.stderr == "nothing to change in 1 groups\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to", "earliest"], "found neither, wanted GROUP or --matching"),
        (["a", "--matching", "a", "--to", "earliest"], "found both, wanted GROUP or --matching"),
        (["--matching", "no-such-.*", "--to", "earliest"], "found no groups whose whole name"),
        (["--matching", "a", "--undo", "f", "--to", "earliest"], "found --undo and --matching"),
    ],
)
def test_a_reset_by_a_pattern_with_a_mistake_is_refused(
    ottla: Run, group: str, arguments: list[str], problem: str
) -> None:
    ended = ottla("groups", "reset", *arguments, "--yes")
    assert (ended.exit_code, problem in ended.stderr) == (2, True), ended.output
