"""Consumers that read from the replica in their rack (KIP-392), and what followers serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_embedded.replication.replica_selector import RACK_AWARE_SELECTOR, ReplicaView, nearest_replica
from ottla_wire.protocol import ErrorCode

MakeCluster = Callable[..., Any]
RACKS = {1: "a", 2: "b", 3: "c"}


def partition_of(answers: list[Any]) -> Any:
    (answer,) = answers
    return answer.responses[0].partitions[0]


def with_racks(make_cluster: MakeCluster) -> Any:
    cluster = make_cluster(racks=RACKS, **{"replica.selector.class": RACK_AWARE_SELECTOR})
    cluster.create()
    cluster[1].append(b"v")
    cluster.settle()
    return cluster


def test_the_leader_names_the_replica_in_the_consumers_rack_and_gives_no_records(make_cluster: MakeCluster) -> None:
    cluster = with_racks(make_cluster)
    answer = partition_of(cluster.fetch(1, 0, rack_id="b", max_wait_ms=1_000))
    assert (answer.preferred_read_replica, bytes(answer.records)) == (2, b"")
    followed = partition_of(cluster.fetch(2, 0, rack_id="b"))
    assert followed.records
    assert followed.preferred_read_replica == -1


def test_the_leader_serves_its_own_rack_and_racks_without_a_replica(make_cluster: MakeCluster) -> None:
    cluster = with_racks(make_cluster)
    for rack in ("a", "z", ""):
        answer = partition_of(cluster.fetch(1, 0, rack_id=rack))
        assert answer.preferred_read_replica == -1
        assert answer.records


def test_without_a_selector_racks_make_no_difference(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(racks=RACKS)
    cluster.create()
    cluster[1].append(b"v")
    cluster.settle()
    assert partition_of(cluster.fetch(1, 0, rack_id="b")).records


def test_a_replica_that_does_not_have_the_offset_or_is_not_in_sync_is_not_named(make_cluster: MakeCluster) -> None:
    cluster = with_racks(make_cluster)
    cluster.wire.cut.add((2, 1))
    cluster.wire.fail(2, 1)
    cluster[1].append(b"w", acks=1)
    cluster.settle()
    assert partition_of(cluster.fetch(1, 1, rack_id="b")).preferred_read_replica == 2
    assert partition_of(cluster.fetch(1, 2, rack_id="b")).preferred_read_replica == -1
    cluster.change(isr=(1, 3))
    assert partition_of(cluster.fetch(1, 0, rack_id="b")).preferred_read_replica == -1


def test_a_follower_serves_up_to_the_high_watermark_that_it_knows(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a")
    cluster.settle()
    assert cluster[2].partition().log.log_end_offset == 1
    assert cluster[2].partition().high_watermark == 0, "it hears of it with the next answer"
    early = partition_of(cluster.fetch(2, 0))
    assert (early.error_code, bytes(early.records), early.high_watermark) == (0, b"", 0)
    assert partition_of(cluster.fetch(2, 1)).error_code == 0, "an offset that is there but not readable yet"
    assert partition_of(cluster.fetch(2, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.advance(1_000)
    assert partition_of(cluster.fetch(2, 0)).records


def test_a_consumer_that_waits_at_a_follower_is_woken_when_the_follower_may_serve_it(make_cluster: MakeCluster) -> None:
    cluster = with_racks(make_cluster)
    waiting = cluster.fetch(2, 1, max_wait_ms=60_000)
    assert waiting == []
    cluster[1].append(b"w")
    cluster.settle()
    assert partition_of(waiting).records, "with a selector followers are told the high watermark at once"


def test_a_consumer_that_waits_at_the_leader_is_woken_by_the_high_watermark(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    waiting = cluster.fetch(1, 0, max_wait_ms=60_000)
    cluster[1].append(b"v", acks=1)
    cluster.loop.run()
    assert waiting == [], "appended, but not replicated"
    cluster.settle()
    assert partition_of(waiting).records


def test_min_bytes_counts_what_the_high_watermark_has_passed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"x" * 100)
    cluster.settle()
    size = cluster[1].partition().log.size_bytes()
    waiting = cluster.fetch(1, 0, max_wait_ms=60_000, min_bytes=3 * size)
    cluster[1].append(b"x" * 100)
    cluster.settle()
    assert waiting == []
    cluster[1].append(b"x" * 100)
    cluster.settle()
    assert len(partition_of(waiting).records) == 3 * size


def test_clients_from_before_racks_are_sent_to_the_leader(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    assert partition_of(cluster.fetch(2, 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_nearest_replica_is_the_furthest_of_those_in_the_rack() -> None:
    leader = ReplicaView(1, "a", 10, 0)
    followers = [ReplicaView(2, "b", 8, 5), ReplicaView(3, "b", 9, 50), ReplicaView(4, "b", 9, 20)]
    assert nearest_replica("b", leader, followers) == 4
    assert nearest_replica("a", leader, followers) == 1
    assert nearest_replica("c", leader, followers) == 1
