"""Fetch sessions: ids, epochs, and who makes room."""

from __future__ import annotations

import pytest

from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.replication.fetch_session import FetchSessionCache, SessionPartition
from ottla_wire.protocol import ErrorCode


def test_each_request_of_a_session_has_the_next_epoch() -> None:
    cache = FetchSessionCache(slots=2, clock=ManualClock())
    session = cache.create(uses_topic_ids=True)
    assert session is not None
    assert cache.resume(session.session_id, 1, uses_topic_ids=True) is session
    assert cache.resume(session.session_id, 2, uses_topic_ids=True) is session
    with pytest.raises(BrokerError) as repeated:
        cache.resume(session.session_id, 2, uses_topic_ids=True)
    assert repeated.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_epoch_wraps_to_one_never_to_the_initial_epoch() -> None:
    cache = FetchSessionCache(slots=1, clock=ManualClock())
    session = cache.create(uses_topic_ids=False)
    assert session is not None
    session.epoch = 0x7FFFFFFF
    cache.resume(session.session_id, 0x7FFFFFFF, uses_topic_ids=False)
    assert session.epoch == 1


def test_unknown_sessions_and_mixed_topic_ids_are_refused() -> None:
    cache = FetchSessionCache(slots=1, clock=ManualClock())
    session = cache.create(uses_topic_ids=False)
    assert session is not None
    with pytest.raises(BrokerError) as unknown:
        cache.resume(99, 1, uses_topic_ids=False)
    assert unknown.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(BrokerError) as mixed:
        cache.resume(session.session_id, 1, uses_topic_ids=True)
    assert mixed.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_gives_no_session_until_the_oldest_has_been_idle_for_two_minutes() -> None:
    clock = ManualClock()
    cache = FetchSessionCache(slots=2, clock=clock)
    first, second = cache.create(uses_topic_ids=False), cache.create(uses_topic_ids=False)
    assert first is not None
    assert second is not None
    clock.advance(119_999)
    cache.resume(first.session_id, 1, uses_topic_ids=False)  # now the second one is the oldest
    assert cache.create(uses_topic_ids=False) is None
    clock.advance(1)
    assert cache.create(uses_topic_ids=False) is not None
    assert cache.resume(first.session_id, 2, uses_topic_ids=False) is first
    with pytest.raises(BrokerError):
        cache.resume(second.session_id, 1, uses_topic_ids=False)


def test_a_served_partition_goes_to_the_end_of_its_session() -> None:
    cache = FetchSessionCache(slots=1, clock=ManualClock())
    session = cache.create(uses_topic_ids=False)
    assert session is not None
    session.partitions = {("t", number): SessionPartition("t", number) for number in range(3)}
    session.rotate(("t", 0))
    assert [key[1] for key in session.partitions] == [1, 2, 0]
