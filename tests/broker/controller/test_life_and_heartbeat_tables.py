"""The two state machines of a broker's life, without loop and network: the broker's own, and the controller's."""

from __future__ import annotations

import pytest

from broker_embedded.controller.heartbeats import BrokerHeartbeat, ControlState, next_state
from broker_embedded.server.life.broker_state_machine import (
    MAX_REGISTRATION_BACKOFF_MS,
    NO_EPOCH,
    SHUTDOWN_HEARTBEAT_MS,
    Beat,
    BrokerState,
    BrokerStateMachine,
    Register,
)
from ottla_wire.protocol import ErrorCode

FENCED, UNFENCED = ControlState.FENCED, ControlState.UNFENCED
LEAVING, GONE = ControlState.CONTROLLED_SHUTDOWN, ControlState.SHUTDOWN_NOW


@pytest.mark.parametrize(
    ("state", "wants", "caught_up", "leads", "seen", "after"),
    [
        (FENCED, "in", False, False, True, FENCED),
        (FENCED, "in", True, False, True, UNFENCED),
        (FENCED, "fence", True, False, True, FENCED),
        (FENCED, "shut down", True, True, True, GONE),
        (UNFENCED, "in", True, True, True, UNFENCED),
        (UNFENCED, "in", False, True, True, UNFENCED),
        (UNFENCED, "fence", True, True, True, FENCED),
        (UNFENCED, "shut down", True, True, True, LEAVING),
        (UNFENCED, "shut down", True, False, True, GONE),
        (UNFENCED, "both", True, True, True, GONE),
        (LEAVING, "shut down", True, True, True, LEAVING),
        (LEAVING, "shut down", True, False, False, LEAVING),
        (LEAVING, "shut down", True, False, True, GONE),
        (LEAVING, "in", True, True, True, LEAVING),
    ],
)
def test_what_a_heartbeat_makes_of_a_broker(
    state: ControlState, wants: str, caught_up: bool, leads: bool, seen: bool, after: ControlState
) -> None:
    heartbeat = BrokerHeartbeat(
        broker_id=1,
        broker_epoch=1,
        metadata_offset=1,
        want_fence=wants in ("fence", "both"),
        want_shut_down=wants in ("shut down", "both"),
    )
    assert next_state(state, heartbeat, is_caught_up=caught_up, leads=leads, others_have_seen=seen) is after


@pytest.fixture
def life() -> BrokerStateMachine:
    life = BrokerStateMachine(heartbeat_interval_ms=2_000)
    life.start()
    return life


def running(life: BrokerStateMachine) -> BrokerStateMachine:
    life.on_registered(7, metadata_offset=7)
    life.on_heartbeat_answered(is_fenced=False, should_shut_down=False)
    assert life.state is BrokerState.RUNNING
    return life


def test_nothing_is_sent_before_the_start_and_after_the_end(life: BrokerStateMachine) -> None:
    assert BrokerStateMachine(heartbeat_interval_ms=1).next_step() is None
    life.end()
    assert life.next_step() is None


def test_a_life_begins_with_a_registration_and_goes_on_with_heartbeats(life: BrokerStateMachine) -> None:
    assert life.next_step() == Register()
    assert life.on_registered(7, metadata_offset=7) == 0
    assert life.state is BrokerState.RECOVERY
    assert life.next_step() == Beat(epoch=7, want_fence=False, want_shut_down=False)
    assert life.on_heartbeat_answered(is_fenced=False, should_shut_down=False) == 2_000
    assert life.state is BrokerState.RUNNING


def test_a_broker_that_is_behind_waits_for_metadata_not_for_a_timer(life: BrokerStateMachine) -> None:
    assert life.on_registered(7, metadata_offset=3) == 2_000
    assert not life.may_get_in_at(6)
    assert life.may_get_in_at(7)
    running(life)
    assert not life.may_get_in_at(8)


def test_a_refused_registration_is_tried_again_more_and_more_slowly(life: BrokerStateMachine) -> None:
    delays = [life.on_registration_refused() for _ in range(20)]
    assert delays == sorted(delays)
    assert delays[0] < delays[1]
    assert delays[-1] == MAX_REGISTRATION_BACKOFF_MS
    life.on_registered(7, metadata_offset=7)
    assert life.on_registration_refused() == delays[0]


def test_a_running_broker_that_is_fenced_stays_running_and_may_get_in_again(life: BrokerStateMachine) -> None:
    running(life).on_heartbeat_answered(is_fenced=True, should_shut_down=False)
    assert life.state is BrokerState.RUNNING
    assert life.may_get_in_at(7)


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_whose_registration_is_gone_registers_again(life: BrokerStateMachine, error: ErrorCode) -> None:
    assert running(life).on_heartbeat_refused(error) == 0
    assert life.next_step() == Register()
    life.on_registered(9, metadata_offset=9)
    assert life.state is BrokerState.RUNNING
    assert life.next_step() == Beat(epoch=9, want_fence=False, want_shut_down=False)


def test_another_refusal_changes_nothing(life: BrokerStateMachine) -> None:
    assert running(life).on_heartbeat_refused(ErrorCode.UNKNOWN_SERVER_ERROR) == 2_000
    assert life.epoch == 7


def test_a_broker_that_wants_to_go_asks_often_and_ends_when_it_is_let_go(life: BrokerStateMachine) -> None:
    assert running(life).begin_shutdown()
    assert life.next_step() == Beat(epoch=7, want_fence=False, want_shut_down=True)
    assert life.on_no_answer() == SHUTDOWN_HEARTBEAT_MS
    assert life.on_heartbeat_answered(is_fenced=False, should_shut_down=False) == SHUTDOWN_HEARTBEAT_MS
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    life.on_heartbeat_answered(is_fenced=True, should_shut_down=True)
    assert life.state is BrokerState.SHUTTING_DOWN


def test_a_broker_that_wants_to_go_and_is_not_known_any_more_just_goes(life: BrokerStateMachine) -> None:
    running(life).begin_shutdown()
    life.on_heartbeat_refused(ErrorCode.STALE_BROKER_EPOCH)
    assert life.state is BrokerState.SHUTTING_DOWN


def test_a_broker_that_was_never_in_has_nobody_to_ask(life: BrokerStateMachine) -> None:
    assert not life.begin_shutdown()
    assert (life.state, life.epoch) == (BrokerState.SHUTTING_DOWN, NO_EPOCH)


def test_a_broker_without_storage_stays_out(life: BrokerStateMachine) -> None:
    running(life).has_storage = False
    assert life.next_step() == Beat(epoch=7, want_fence=True, want_shut_down=False)
    life.on_heartbeat_answered(is_fenced=True, should_shut_down=False)
    assert not life.may_get_in_at(100)
