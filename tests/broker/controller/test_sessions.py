"""Who is alive is who has called; a controller that was busy itself takes nobody for dead."""

from __future__ import annotations

import pytest

from broker_embedded.common.clock import ManualClock
from broker_embedded.controller.sessions import BrokerSessions


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> BrokerSessions:
    sessions = BrokerSessions(clock=clock, timeout_ms=800)
    sessions.restart({1: 0, 2: 0})
    return sessions


def pass_time(clock: ManualClock, sessions: BrokerSessions, ms: int) -> list[int]:
    """Time goes by with a check at each interval, as the controller's timer makes it."""
    expired: list[int] = []
    for _ in range(ms // sessions.check_interval_ms):
        clock.advance(sessions.check_interval_ms)
        expired = sessions.expired([1, 2])
    return expired


def test_a_broker_that_does_not_call_for_a_session_is_expired(clock: ManualClock, sessions: BrokerSessions) -> None:
    assert pass_time(clock, sessions, 700) == []
    sessions.touch(2)
    assert pass_time(clock, sessions, 100) == [1]
    assert pass_time(clock, sessions, 700) == [1, 2]


def test_only_who_was_asked_for_is_named(clock: ManualClock, sessions: BrokerSessions) -> None:
    pass_time(clock, sessions, 800)
    assert sessions.expired([2]) == [2]


def test_a_check_that_comes_late_gives_everybody_the_lateness(clock: ManualClock, sessions: BrokerSessions) -> None:
    pass_time(clock, sessions, 400)
    clock.advance(60_000)  # the process was stopped, or the loop was busy: heartbeats may lie unread
    assert sessions.expired([1, 2]) == []
    assert pass_time(clock, sessions, 200) == []
    assert pass_time(clock, sessions, 200) == [1, 2]


def test_many_short_stalls_add_up_to_nothing(clock: ManualClock, sessions: BrokerSessions) -> None:
    for _ in range(6):
        clock.advance(sessions.check_interval_ms + 500)
        assert sessions.expired([1, 2]) == []


def test_a_new_term_forgets_what_it_knew(clock: ManualClock, sessions: BrokerSessions) -> None:
    sessions.touch(1)
    assert sessions.is_alive(1)
    pass_time(clock, sessions, 700)
    sessions.restart({1: 0, 2: 0})
    assert not sessions.is_alive(1)  # nobody has called this controller yet
    assert pass_time(clock, sessions, 700) == []


def test_the_silence_of_who_was_the_controller_before_counts(clock: ManualClock, sessions: BrokerSessions) -> None:
    sessions.restart({1: 500, 2: 0})
    assert not sessions.is_alive(1)
    assert pass_time(clock, sessions, 200) == []
    assert pass_time(clock, sessions, 100) == [1]
    assert pass_time(clock, sessions, 500) == [1, 2]


def test_who_was_silent_for_long_gets_time_to_call_the_new_controller(
    clock: ManualClock, sessions: BrokerSessions
) -> None:
    sessions.restart({1: 60_000, 2: 60_000})
    assert pass_time(clock, sessions, 200) == []
    sessions.touch(1)
    assert pass_time(clock, sessions, 100) == [2]


def test_who_has_called_lives_for_one_session(clock: ManualClock, sessions: BrokerSessions) -> None:
    sessions.touch(1)
    clock.advance(799)
    assert sessions.is_alive(1)
    clock.advance(1)
    assert not sessions.is_alive(1)
    assert not sessions.is_alive(2)


def test_a_shutdown_is_seen_when_every_other_active_broker_has_read_that_far(sessions: BrokerSessions) -> None:
    sessions.set_shutdown_offset(1, 50)
    sessions.touch(2, metadata_offset=49)
    sessions.touch(3, metadata_offset=50)
    assert not sessions.have_seen_shutdown(1, active=[2, 3])
    assert sessions.have_seen_shutdown(1, active=[3])
    assert sessions.have_seen_shutdown(1, active=[1])
    sessions.touch(2, metadata_offset=51)
    sessions.touch(2, metadata_offset=3)  # an older heartbeat that comes late takes nothing back
    assert sessions.have_seen_shutdown(1, active=[2, 3])
