"""A follower's fetch looks at what is new: partitions that it has whole rest until something happens to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.common.clock import ManualClock
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.records import CreatePartition, CreateTopic
from broker_embedded.replication.fetch_session import FetchSessionCache, SessionPartition
from broker_embedded.replication.follower_wakeups import FollowerWakeups
from broker_embedded.server.fetch.follower import LOOK_AT_ALL_MS, FollowerFetch
from ottla_wire.protocol import ErrorCode

MakeCluster = Callable[..., Any]
TOPIC_ID = bytes(range(16))
MANY = 100


def create_many(cluster: Any) -> None:
    """A topic `t` with many partitions, all led by broker 1."""
    partitions = [
        CreatePartition(topic_id=TOPIC_ID, partition=number, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)
        for number in range(MANY)
    ]
    cluster.commit(CreateTopic(name="t", topic_id=TOPIC_ID), *partitions)
    cluster.settle()
    cluster.advance(2_000)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that followers' fetches look at."""
    numbers: list[int] = []
    read_one = FollowerFetch._read_one

    def noted(self: FollowerFetch, name: str | None, wanted: SessionPartition, budget: int, **more: Any) -> Any:
        numbers.append(wanted.partition)
        return read_one(self, name, wanted, budget, **more)

    monkeypatch.setattr(FollowerFetch, "_read_one", noted)
    return numbers


def test_an_append_to_one_of_many_partitions_makes_followers_look_at_that_one(
    make_cluster: MakeCluster, looked_at: list[int]
) -> None:
    cluster = make_cluster()
    create_many(cluster)
    looked_at.clear()
    while len(looked_at) < 2 * MANY:  # both followers' fetches have just looked at all
        cluster.advance(100)
    looked_at.clear()
    for number in (7, 7, 42):
        results = cluster[1].append(b"a", number=number)
        cluster.settle()
        assert [each.error for each in results] == [ErrorCode.NONE]
    assert set(looked_at) == {7, 42}
    cluster.advance(2_000)
    assert [cluster[node].partition(42).high_watermark for node in (1, 2, 3)] == [1, 1, 1]
    assert [cluster[node].values(7) for node in (1, 2, 3)] == [[b"a", b"a"]] * 3


def test_a_follower_that_waits_for_many_bytes_counts_those_of_partitions_that_rested(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**{"replica.fetch.min.bytes": 400, "replica.fetch.wait.max.ms": 60_000})
    create_many(cluster)
    cluster.advance(60_000, step_ms=10_000)
    results = cluster[1].append(b"a" * 100, number=7)
    cluster.settle()
    assert results == [], "it waits for more"
    assert cluster[2].values(7) == []
    results += cluster[1].append(b"b" * 300, number=7)
    cluster.settle()
    assert cluster[2].values(7) == [b"a" * 100, b"b" * 300]


def test_what_nobody_tells_is_found_by_looking_at_all(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a", b"b")
    cluster.settle()
    cluster.advance(3_000)
    cluster[1].partition().log.increase_log_start_offset(2)
    cluster.advance(LOOK_AT_ALL_MS + 1_000)
    assert [cluster[node].partition().log_start_offset for node in (1, 2, 3)] == [2, 2, 2]


def test_a_follower_keeps_up_with_partitions_that_rest_for_long(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**{"replica.lag.time.max.ms": 10_000})
    cluster.create()
    cluster.advance(60_000)
    cluster.wire.cut |= {(3, 1)}
    cluster.wire.fail(1, 3)
    results = cluster[1].append(b"a")
    cluster.advance(7_000)
    assert (cluster.state.isr, results) == ((1, 2, 3), []), "it was there a moment ago"
    cluster.advance(10_000)
    assert cluster.state.isr == (1, 2)
    assert [each.error for each in results] == [ErrorCode.NONE]


def test_a_partition_whose_isr_has_lost_a_follower_does_not_rest_for_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**{"replica.fetch.wait.max.ms": 100})
    cluster.create()
    cluster.advance(1_000)
    cluster.change(isr=(1, 2))
    cluster.advance(300)
    assert set(cluster.state.isr) == {1, 2, 3}, "with its next fetch it is in sync again"


def session_with_one_partition() -> tuple[FetchSessionCache, Any, SessionPartition]:
    sessions = FetchSessionCache(slots=2, clock=ManualClock())
    session = sessions.create(uses_topic_ids=True)
    assert session is not None
    partition = SessionPartition(TOPIC_ID, 0)
    session.partitions = {(TOPIC_ID, 0): partition}
    session.awake = dict(session.partitions)
    return sessions, session, partition


def test_news_wake_a_partition_once() -> None:
    _, session, partition = session_with_one_partition()
    news = FollowerWakeups()
    news.rest(TopicPartition("t", 0), session, partition)
    assert not session.awake
    assert news.wake(TopicPartition("t", 1)) == []
    assert news.wake(TopicPartition("t", 0)) == [session.session_id]
    assert session.awake == session.partitions
    assert news.wake(TopicPartition("t", 0)) == []


def test_what_a_session_has_forgotten_is_not_woken_in_it() -> None:
    _, session, partition = session_with_one_partition()
    news = FollowerWakeups()
    news.rest(TopicPartition("t", 0), session, partition)
    session.partitions.clear()
    assert news.wake(TopicPartition("t", 0)) == []
    assert not session.awake


def test_nothing_is_kept_of_sessions_that_are_over() -> None:
    sessions, session, partition = session_with_one_partition()
    news = FollowerWakeups()
    news.rest(TopicPartition("t", 0), session, partition)
    news.forget_ended()
    assert len(news) == 1
    sessions.remove(session.session_id)
    assert news.wake(TopicPartition("t", 0)) == []
    news.rest(TopicPartition("t", 0), session, partition)
    news.forget_ended()
    assert len(news) == 0
