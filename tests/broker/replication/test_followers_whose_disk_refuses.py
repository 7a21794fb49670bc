"""A follower whose disk refuses one step, any of them, while its log is cut at one of its ends, follows on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from refusing_disk import refuse

from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.records import ChangePartition, CreatePartition, CreateTopic, RemoveTopic
from ottla_wire.protocol import ErrorCode

MakeCluster = Callable[..., Any]


def two_in_sync(make_cluster: MakeCluster) -> Any:
    cluster = make_cluster(2)
    cluster.create((1, 2), min_insync_replicas=1)
    for number in range(5):
        cluster[1].append(b"%d" % number)
    cluster.advance(1_000)
    return cluster


def cut_off(cluster: Any) -> None:
    cluster.wire.cut |= {(1, 2), (2, 1)}
    cluster.wire.fail(1, 2)


def whose_leader_deletes_records(make_cluster: MakeCluster) -> Any:
    cluster = two_in_sync(make_cluster)
    cluster[1].partition().log.delete_records(3)
    cluster[1].append(b"more", acks=1)
    return cluster


def that_has_what_its_leader_has_not(make_cluster: MakeCluster) -> Any:
    """In several segments, and by a producer of which the leader knows nothing."""
    cluster = two_in_sync(make_cluster)
    cluster.elect(2)
    cluster.settle()
    cut_off(cluster)
    for number in range(3):
        cluster[2].partition().log.roll()
        cluster[2].append(b"only %d" % number, acks=1)
    cluster.elect(1, isr=(1,))
    cluster[1].append(b"instead", acks=1)
    cluster.wire.cut.clear()
    return cluster


def that_was_away_too_long(make_cluster: MakeCluster) -> Any:
    """All that it has has left the leader's log."""
    cluster = two_in_sync(make_cluster)
    cut_off(cluster)
    cluster.change(isr=(1,))
    cluster[1].append(b"gone", acks=1)
    log = cluster[1].partition().log
    log.roll()
    log.update_high_watermark(6)
    log.delete_records(6)
    log.apply_retention(now_ms=cluster.clock.now_ms())
    cluster.wire.cut.clear()
    return cluster


@pytest.mark.representative("True-whose_leader_deletes_records")
@pytest.mark.parametrize(
    "follower", [whose_leader_deletes_records, that_has_what_its_leader_has_not, that_was_away_too_long]
)
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_follower_follows_on_whichever_step_was_refused(
    make_cluster: MakeCluster, follower: Callable[[MakeCluster], Any], loses_power: bool
) -> None:
    refused = 0
    while True:
        cluster = follower(make_cluster)
        seen: list[str] = []
        cluster[2].fs.before_change = refuse(refused, seen)
        cluster.advance(2_000)
        cluster[2].fs.before_change = None
        if len(seen) <= refused:
            break
        cluster.advance(2_000)
        results = cluster[1].append(b"after")
        cluster.advance(1_000)
        step = f"refused: {seen[refused]}"
        assert [each.error for each in results] == [ErrorCode.NONE], step
        assert cluster.state.isr == (1, 2), step
        assert cluster[2].values() == cluster[1].values(), step
        own = cluster[2].partition().log
        stored = {int(name.partition(".")[0]) for name in cluster[2].fs.list_dir(own.directory) if name[-4:] == ".log"}
        assert stored == {each.base_offset for each in own.segments}, step
        cluster[2].stop(cleanly=False, crash=Random(refused) if loses_power else None)
        cluster[2].start()
        cluster.advance(2_000)
        assert cluster[2].values() == cluster[1].values(), step
        refused += 1
    assert refused > 8, "the log was cut"


class Told:
    """A coordinator, as far as it hears of leaders."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_leader(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self.epochs.append(leader_epoch)

    def on_follower(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        raise AssertionError("it goes on leading")


def test_a_follower_that_is_elected_leads_whichever_step_was_refused(make_cluster: MakeCluster) -> None:
    refused = 0
    while True:
        cluster = two_in_sync(make_cluster)
        coordinator = Told()
        cluster[2].replicas.add_leadership_listener(coordinator)
        seen: list[str] = []
        cluster[2].fs.before_change = refuse(refused, seen)
        cluster.elect(2)
        cluster.advance(1_000)
        cluster[2].append(b"first")  # writes the epoch down, or is refused
        cluster.advance(1_000)
        cluster[2].fs.before_change = None
        if len(seen) <= refused:
            break
        step = f"refused: {seen[refused]}"
        assert coordinator.epochs == [cluster.state.leader_epoch], step
        assert not cluster[2].replicas.follows(cluster[2].partition().topic_partition), step
        results = cluster[2].append(b"after")
        cluster.advance(1_000)
        assert [each.error for each in results] == [ErrorCode.NONE], step
        assert cluster[1].values() == cluster[2].values(), step
        assert cluster[1].partition().log.leader_epochs == cluster[2].partition().log.leader_epochs, step
        refused += 1
    assert refused > 3, "the epoch was written down"


def test_a_replica_that_the_disk_refused_is_there_when_it_refuses_no_more(make_cluster: MakeCluster) -> None:
    refused = 0
    while True:
        cluster = make_cluster(2)
        seen: list[str] = []
        cluster[2].fs.before_change = refuse(refused, seen)
        cluster.create((2, 1))
        cluster.advance(2_000)
        cluster[2].fs.before_change = None
        if len(seen) <= refused:
            break
        results = cluster[2].append(b"after")
        cluster.advance(1_000)
        step = f"refused: {seen[refused]}"
        assert [each.error for each in results] == [ErrorCode.NONE], step
        assert cluster[1].values() == cluster[2].values() == [b"after"], step
        refused += 1
    assert refused > 4, "the replica was made"


def test_a_replica_that_the_disk_refused_is_not_made_when_its_topic_has_gone(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster[2].fs.capacity_bytes = 0
    cluster.create((2, 1))
    cluster.commit(RemoveTopic(topic_id=cluster.cache.image.topics["t"].topic_id))
    cluster[2].fs.capacity_bytes = None
    cluster.advance(5_000)
    assert cluster[2].replicas.partitions() == []
    assert [each.name for each in cluster[2].logs.logs] == []


def test_a_full_disk_on_which_a_topic_is_deleted_does_not_keep_a_broker_from_what_else_changed(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2), index_interval_bytes=0)
    other = bytes(reversed(range(16)))
    cluster.commit(
        CreateTopic(name="u", topic_id=other),
        CreatePartition(
            topic_id=other, partition=0, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0, partition_epoch=0
        ),
    )
    for number in range(5):
        cluster[1].append(b"%d" % number)
    cluster.advance(1_000)
    cluster[2].fs.before_change = full
    cluster.commit(
        RemoveTopic(topic_id=cluster.cache.image.topics["t"].topic_id),
        ChangePartition(topic_id=other, partition=0, leader=2),
    )
    partition = cluster[2].replicas.partition(TopicPartition("u", 0))
    assert partition is not None
    assert partition.is_leader
    assert cluster[2].replicas.partition(TopicPartition("t", 0)) is None


def full(operation: str, path: str) -> None:
    """No room for what the deleted topic still had to write; the rest of the disk is another one."""
    if operation == "write" and "/t-0" in path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
