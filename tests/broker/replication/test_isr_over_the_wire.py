"""ISR changes as the controller gets them, and the fetches that lead to them: batching, retries, fenced brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode

MakeCluster = Callable[..., Any]
TOPIC_ID = bytes(range(16))


def alterations(cluster: Any) -> list[Any]:
    return [request for _, _, api, request in cluster.wire.sent if api is ApiKey.ALTER_PARTITION]


def follower_fetch(cluster: Any, *, replica: int = 2, replica_epoch: int | None = None, **partition: int) -> Any:
    """A follower's request to broker 1, and the answer for the partition."""
    if replica_epoch is None:
        replica_epoch = cluster[replica].broker_epoch
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, **partition}
    body = {
        "replica_state": {"replica_id": replica, "replica_epoch": replica_epoch},
        "max_wait_ms": 0,
        "min_bytes": 0,
        "topics": [{"topic_id": TOPIC_ID, "partitions": [wanted]}],
    }
    (answer,) = cluster.ask(1, ApiKey.FETCH, 17, body)
    return answer.responses[0].partitions[0]


def test_a_change_names_each_member_with_its_broker_epoch(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create(isr=(1, 2))
    cluster.advance(1_000)
    (request,) = alterations(cluster)
    assert (request.broker_id, request.broker_epoch) == (1, cluster[1].broker_epoch)
    (wanted,) = request.topics[0].partitions
    members = {each.broker_id: each.broker_epoch for each in wanted.new_isr_with_epochs}
    assert members == {node: cluster[node].broker_epoch for node in (1, 2, 3)}
    assert (wanted.leader_epoch, wanted.partition_epoch, wanted.leader_recovery_state) == (0, 0, 0)
    assert set(cluster.state.isr) == {1, 2, 3}


def test_a_change_that_nobody_decided_is_sent_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    answers = iter([ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
    cluster.refuse = lambda wanted: next(answers, ErrorCode.NONE)
    cluster.create(isr=(1, 2))
    cluster.advance(1_000)
    assert len(alterations(cluster)) == 3
    assert set(cluster.state.isr) == {1, 2, 3}


def test_a_change_is_sent_again_when_the_controller_could_not_be_reached(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.wire.cut.add((1, 0))
    cluster.create(isr=(1, 2))
    cluster.advance(500)
    assert cluster.state.isr == (1, 2)
    cluster.wire.cut.clear()
    cluster.advance(500)
    assert set(cluster.state.isr) == {1, 2, 3}


def test_an_ineligible_replica_is_offered_again_with_its_next_fetch(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    answers = iter([ErrorCode.INELIGIBLE_REPLICA])
    cluster.refuse = lambda wanted: next(answers, ErrorCode.NONE)
    cluster.create(isr=(1, 2))
    cluster.advance(2_000)
    assert len(alterations(cluster)) == 2
    assert set(cluster.state.isr) == {1, 2, 3}


def test_a_leader_that_was_overtaken_waits_for_metadata_and_does_not_ask_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create(isr=(1, 2))
    cluster.wire.sent.clear()
    cluster.tells_at_once = False
    cluster.elect(2, isr=(2, 1))
    cluster.advance(3_000)
    assert len(alterations(cluster)) <= 1
    cluster.tells_at_once = True
    cluster.tell()
    cluster.advance(3_000)
    assert set(cluster.state.isr) == {1, 2, 3}
    assert cluster.state.leader == 2


def test_a_fenced_follower_does_not_join(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.fence(3)
    cluster.create(isr=(1, 2))
    cluster.advance(2_000)
    assert cluster.state.isr == (1, 2)
    assert alterations(cluster) == []
    assert cluster[3].partition().log.log_end_offset == 0
    results = cluster[1].append(b"v")
    cluster.settle()
    assert len(results) == 1, "and is not waited for"


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_fetch_with_the_broker_epoch_of_an_earlier_life_is_refused(
    make_cluster: MakeCluster, epoch: int, code: int
) -> None:
    cluster = make_cluster()
    cluster.create()
    assert follower_fetch(cluster, replica_epoch=epoch).error_code == code
    assert cluster[2].broker_epoch > 1


def test_a_fetch_by_a_broker_that_is_no_replica_is_refused(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create((1, 2))
    assert follower_fetch(cluster, replica=3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    newer = follower_fetch(cluster, replica=3, current_leader_epoch=0)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH, "it may know that it was added, and we not yet"


def test_a_follower_in_another_epoch_is_refused(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.elect(1)
    assert follower_fetch(cluster, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert follower_fetch(cluster, current_leader_epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_reads_beyond_the_high_watermark_and_a_consumer_does_not(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.wire.cut |= {(2, 1), (3, 1)}
    cluster.wire.fail(1, 2)
    cluster.wire.fail(1, 3)
    cluster[1].append(b"v", acks=1)
    assert follower_fetch(cluster).records
    (answer,) = cluster.fetch(1, 0)
    assert not answer.responses[0].partitions[0].records
    assert answer.responses[0].partitions[0].high_watermark == 0


def test_a_follower_whose_last_batch_is_not_the_leaders_is_told_where_they_part(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"v")
    cluster.settle()
    cluster.elect(1)
    answer = follower_fetch(cluster, fetch_offset=5, last_fetched_epoch=0, current_leader_epoch=1)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert not answer.records
    follower = cluster[1].partition().leading.followers[2]
    assert follower.log_end_offset == 1, "what it asked for says nothing about what it has of our log"
    ahead = follower_fetch(cluster, fetch_offset=1, last_fetched_epoch=9, current_leader_epoch=1)
    assert ahead.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_sessions_name_only_what_changed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    cluster.advance(2_000)
    fetches = [request for source, _, api, request in cluster.wire.sent if api is ApiKey.FETCH and source == 2]
    assert fetches[0].session_epoch == 0
    assert [each.session_epoch for each in fetches[1:]] == list(range(1, len(fetches)))
    assert not fetches[-1].topics, "nothing new to ask for"
    cluster.wire.sent.clear()
    cluster[1].append(b"v")
    cluster.settle()
    (after,) = [request for source, _, api, request in cluster.wire.sent if api is ApiKey.FETCH and source == 2]
    assert after.topics[0].partitions[0].fetch_offset == 1


def test_a_follower_starts_a_new_session_when_the_leader_has_forgotten_its_own(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    cluster.advance(1_000)
    cluster[1].broker.fetch_sessions._sessions.clear()
    cluster.advance(1_000)
    results = cluster[1].append(b"v")
    cluster.settle()
    assert [each.error for each in results] == [ErrorCode.NONE]
