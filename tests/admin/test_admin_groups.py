"""Groups as an administrator sees them, how far they are behind, and where they go on."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import Queue
from ottla.admin import Admin, GroupInUse, OffsetMove, PartlyDone, TopicSpec, UnknownGroup
from ottla.admin.facts.lag import lag_of
from ottla.admin.operations.offset_resets import load_undo
from ottla.errors import InputError, UnknownTopic
from ottla.records import TopicPartition
from ottla.testing import Kafka, wait_until

Ask = Callable[..., Any]


@pytest.fixture
def topic(admin: Admin, cluster: EmbeddedCluster, name: str) -> str:
    """Two partitions of ten records each, one a minute apart; the first three of partition 0 are gone."""
    admin.create_topics({name: TopicSpec(partitions=2, replication_factor=1)})
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    for partition in (0, 1):
        for minute in range(10):
            kafka.produce(name, [b"x"], partition=partition, timestamp_ms=1_700_000_000_000 + minute * 60_000)
    admin.delete_records({TopicPartition(name, 0): 3})
    return name


def commit(cluster: EmbeddedCluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@contextmanager
def member(cluster: EmbeddedCluster, group: str, topic: str, **settings: Any) -> Iterator[None]:
    given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "client.id": "reader", **settings}
    consumer = confluent_kafka.Consumer(given)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.05) is None and consumer.assignment(), timeout_s=20)
        yield
    finally:
        consumer.close()


def committed(admin: Admin, group: str) -> dict[int, int]:
    (found,) = admin.describe_groups(group)
    return {each.partition: each.offset for each in found.offsets or ()}


def test_a_group_is_listed_with_type_and_state_and_described_with_offsets(
    ask: Ask, cluster: EmbeddedCluster, topic: str
) -> None:
    commit(cluster, topic, topic, {0: 5})
    (listed,) = [group for group in ask("list_groups") if group.group_id == topic]
    assert (listed.type, listed.state, listed.members, listed.offsets) == ("Classic", "Empty", None, None)
    (found,) = ask("describe_groups", topic)
    assert (found.state, found.members) == ("Empty", ())
    assert [(each.topic, each.partition, each.offset) for each in found.offsets] == [(topic, 0, 5)]
    with pytest.raises(UnknownGroup, match="no-such-group"):
        ask("describe_groups", "no-such-group")


def test_a_share_group_that_offset_fetch_does_not_know_is_described(
    ask: Ask, cluster: EmbeddedCluster, topic: str
) -> None:
    share_group, no_group = f"{topic}-shares", f"{topic}-none"
    with (
        Queue(topic, group=share_group, bootstrap_servers=cluster.bootstrap_servers) as queue,
        cluster.faults.add(api="OFFSET_FETCH", group=share_group, error="GROUP_ID_NOT_FOUND") as fault,
        cluster.faults.add(api="OFFSET_FETCH", group=no_group, error="GROUP_ID_NOT_FOUND"),
    ):
        job = queue.take(20)
        assert job is not None
        job.accept()
        wait_until(lambda: ask("describe_groups", share_group)[0].offsets, timeout_s=20)
        asked = fault.hits
        (found,) = ask("describe_groups", share_group)
        assert (found.type, [each.client_id for each in found.members]) == ("Share", ["ottla"])
        assert {each.topic for each in found.offsets} == {topic}
        (lag,) = ask("group_lag", share_group)
        assert {each.partition for each in lag.partitions} == {0, 1}
        assert fault.hits == asked + 2
        with pytest.raises(UnknownGroup, match=no_group):
            ask("describe_groups", no_group)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_named_with_what_they_have(
    admin: Admin, cluster: EmbeddedCluster, topic: str, protocol: str
) -> None:
    with member(cluster, topic, topic, **{"group.protocol": protocol}):
        wait_until(lambda: admin.describe_groups(topic)[0].state == "Stable", timeout_s=20)
        (group,) = admin.describe_groups(topic)
        assert group.type == protocol.capitalize()
        (found,) = group.members or ()
        assert found.client_id == "reader"
        assert found.subscribed == (topic,)
        assert sorted(found.partitions) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        (lag,) = admin.group_lag(topic)
        assert {each.client_id for each in lag.partitions} == {"reader"}

        plan = admin.plan_reset(topic, to="earliest", topics={topic: None})
        assert len(plan.members) == 1
        with pytest.raises(GroupInUse, match="reader at"):
            admin.apply_reset(plan)
        with pytest.raises(GroupInUse):
            admin.delete_groups(topic)


def test_lag_counts_what_is_there_and_says_what_is_lost(ask: Ask, cluster: EmbeddedCluster, topic: str) -> None:
    commit(cluster, topic, topic, {0: 1, 1: 4})
    (lag,) = ask("group_lag", topic)
    first, second = lag.partitions
    assert (first.committed, first.log_start, first.log_end, first.lag, first.lost) == (1, 3, 10, 7, 2)
    assert (second.committed, second.lag, second.lost, second.held_at) == (4, 6, 0, None)
    assert (lag.total, lag.lost) == (13, 2)
    assert topic in [each.group_id for each in ask("group_lag")]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ({"to": "earliest"}, {0: 3, 1: 0}),
        ({"to": "latest"}, {0: 10, 1: 10}),
        ({"to": 6}, {0: 6, 1: 6}),
        ({"to": dt.datetime.fromtimestamp(1_700_000_000 + 5 * 60, dt.UTC)}, {0: 5, 1: 5}),
        ({"to": "-1h"}, {0: 10, 1: 10}),
        ({"shift": -3}, {0: 3, 1: 5}),
        ({"shift": 1}, {0: 6, 1: 9}),
    ],
)
def test_a_group_is_put_anywhere_and_back(
    admin: Admin,
    cluster: EmbeddedCluster,
    topic: str,
    tmp_path: Path,
    position: dict[str, Any],
    expected: dict[int, int],
) -> None:
    commit(cluster, topic, topic, {0: 5, 1: 8})
    plan = admin.plan_reset(topic, **position)
    assert {move.partition: move.new for move in plan.moves} == expected
    assert committed(admin, topic) == {0: 5, 1: 8}, "a plan changes nothing"

    undo = tmp_path / "undo.json"
    admin.apply_reset(plan, undo_file=undo)
    assert committed(admin, topic) == expected
    admin.apply_reset(admin.plan_restore(undo))
    assert committed(admin, topic) == {0: 5, 1: 8}


def test_an_offset_that_is_not_there_becomes_the_nearest_and_the_plan_says_so(
    admin: Admin, cluster: EmbeddedCluster, topic: str
) -> None:
    commit(cluster, topic, topic, {0: 5})
    low, high = (admin.plan_reset(topic, to=offset).moves[0] for offset in (0, 99))
    assert (low.new, low.is_clamped, low.records) == (3, True, 2)
    assert (high.new, high.is_clamped, high.records) == (10, True, -5)
    assert isinstance(low, OffsetMove)


def test_milliseconds_since_the_epoch_are_no_offset_that_skips_all_records(
    admin: Admin, cluster: EmbeddedCluster, topic: str
) -> None:
    commit(cluster, topic, topic, {0: 5})
    with pytest.raises(InputError, match=r"found offset 1712010100000, wanted one of its log, which ends at 10, or a"):
        admin.plan_reset(topic, to=1_712_010_100_000)
    assert committed(admin, topic) == {0: 5}


def test_a_group_that_committed_nothing_is_given_offsets_and_loses_them_again(
    admin: Admin, topic: str, tmp_path: Path
) -> None:
    undo = tmp_path / "undo.json"
    plan = admin.plan_reset(f"{topic}-new", to="latest", topics={topic: [1]})
    assert [(move.partition, move.committed, move.new) for move in plan.moves] == [(1, None, 10)]
    admin.apply_reset(plan, undo_file=undo)
    assert committed(admin, f"{topic}-new") == {1: 10}
    restore = admin.plan_restore(undo)
    assert [(move.committed, move.new) for move in restore.moves] == [(10, None)]
    admin.apply_reset(restore)
    assert committed(admin, f"{topic}-new") == {}


def test_a_plan_that_is_no_longer_true_is_not_carried_out(admin: Admin, cluster: EmbeddedCluster, topic: str) -> None:
    commit(cluster, topic, topic, {0: 5})
    plan = admin.plan_reset(topic, to="earliest")
    commit(cluster, topic, topic, {0: 7})
    with pytest.raises(InputError, match="was at 5 when this was planned and is at 7 now"):
        admin.apply_reset(plan)
    assert committed(admin, topic) == {0: 7}


def test_a_plan_that_is_carried_out_twice_does_the_same(admin: Admin, cluster: EmbeddedCluster, topic: str) -> None:
    commit(cluster, topic, topic, {0: 5})
    plan = admin.plan_reset(topic, to="earliest")
    admin.apply_reset(plan)
    admin.apply_reset(plan)
    assert committed(admin, topic) == {0: 3}


class TestUndoFiles:
    def test_an_undo_file_of_another_cluster_or_topic_is_refused(
        self, admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
    ) -> None:
        commit(cluster, topic, topic, {0: 5})
        undo = tmp_path / "undo.json"
        admin.apply_reset(admin.plan_reset(topic, to="earliest"), undo_file=undo)
        good = json.loads(undo.read_bytes())

        undo.write_text(json.dumps({**good, "cluster_id": "elsewhere"}))
        with pytest.raises(InputError, match="'elsewhere', and this is cluster"):
            admin.plan_restore(undo)
        undo.write_text(json.dumps({**good, "offsets": [{**good["offsets"][0], "topic_id": "another"}]}))
        with pytest.raises(InputError, match="created again since"):
            admin.plan_restore(undo)
        assert committed(admin, topic) == {0: 3}

    @pytest.mark.parametrize(
        ("content", "place"),
        [
            (b"{}", "schema"),
            (b'{"schema": "ottla.facts/1"}', "wanted 'ottla.group-offsets/1'"),
            (b'{"schema": "ottla.group-offsets/1", "group_id": 5}', r"\$\.group_id"),
            (b"\x00", "malformed"),
        ],
    )
    def test_what_is_no_undo_file_is_refused_with_the_place(self, content: bytes, place: str) -> None:
        with pytest.raises(InputError, match=place):
            load_undo(content, source="undo.json")

    def test_where_the_undo_file_cannot_be_written_nothing_is_changed(
        self, admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
    ) -> None:
        commit(cluster, topic, topic, {0: 5})
        with pytest.raises(InputError, match="missing"):
            admin.apply_reset(admin.plan_reset(topic, to="earliest"), undo_file=tmp_path / "missing" / "undo.json")
        assert committed(admin, topic) == {0: 5}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({}, InputError, "a reset needs either"),
        ({"to": "earliest", "shift": 1}, InputError, "a reset needs either"),
        ({"to": -5}, InputError, "wanted 0 or more"),
        ({"to": "soon"}, InputError, "wanted earliest"),
        ({"shift": 1, "topics": {"TOPIC": [1]}}, InputError, "has no committed offset for"),
        ({"to": "earliest", "topics": {"no-such-topic": None}}, UnknownTopic, "no-such-topic"),
        ({"to": "earliest", "topics": {"TOPIC": [7]}}, UnknownTopic, "has 2 partitions"),
    ],
)
def test_a_reset_that_cannot_be_is_refused(
    admin: Admin, cluster: EmbeddedCluster, topic: str, wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    commit(cluster, topic, topic, {0: 5})
    if "TOPIC" in wrong.get("topics", {}):
        wrong = {**wrong, "topics": {topic: wrong["topics"]["TOPIC"]}}
    with pytest.raises(error, match=message):
        admin.plan_reset(topic, **wrong)


def test_groups_are_deleted_and_made_to_forget(ask: Ask, admin: Admin, cluster: EmbeddedCluster, topic: str) -> None:
    commit(cluster, topic, topic, {0: 5, 1: 6})
    ask("forget_offsets", topic, TopicPartition(topic, 0))
    assert committed(admin, topic) == {1: 6}
    with pytest.raises(PartlyDone, match="no such group"):
        ask("delete_groups", topic, f"{topic}-missing")
    with pytest.raises(UnknownGroup):
        ask("delete_groups", topic)


def test_a_commit_beyond_the_end_is_a_negative_lag_and_hides_no_other(
    ask: Ask, cluster: EmbeddedCluster, topic: str
) -> None:
    commit(cluster, topic, topic, {0: 15, 1: 4})
    (lag,) = ask("group_lag", topic)
    assert [each.lag for each in lag.partitions] == [-5, 6]
    assert lag.total == 6
    assert lag.beyond_end == lag.partitions[:1]


def test_what_was_committed_for_a_topic_that_is_gone_is_no_lag(
    ask: Ask, admin: Admin, cluster: EmbeddedCluster, topic: str
) -> None:
    other = f"{topic}-gone"
    admin.create_topics({other: TopicSpec(partitions=1, replication_factor=1)})
    commit(cluster, topic, topic, {1: 4})
    commit(cluster, topic, other, {0: 0})
    facts = admin.facts()
    gone = dataclasses.replace(facts, topics=tuple(each for each in facts.topics if each.name != other))
    (group,) = (each for each in gone.groups if each.group_id == topic)
    lag = lag_of(group, gone)
    assert [(each.topic, each.lag, each.is_gone) for each in lag.partitions] == [(topic, 6, False), (other, None, True)]
    assert (lag.total, lag.unknown) == (6, ())
