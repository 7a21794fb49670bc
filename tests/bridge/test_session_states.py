"""QoS 2 state of clients that are away."""

from __future__ import annotations

from ottla.bridge.acknowledger import Slot
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.publisher_session import PublisherSession
from ottla.bridge.mqtt.session_state import Receipt, SessionStates


def test_states_of_clients_that_are_away_expire_and_are_bounded():
    states = SessionStates(most_idle=2, most_receipts=100)
    for name in ("a", "b", "c"):
        states.open(name, name, clean_start=False, expiry_s=10, now_ms=0)
        states.close(name, name, 0)
    assert len(states) == 2
    _, is_present, _ = states.open("a", "x", clean_start=False, expiry_s=10, now_ms=1)
    assert not is_present  # the oldest was forgotten
    _, is_present, _ = states.open("c", "x", clean_start=False, expiry_s=10, now_ms=1)
    assert is_present
    states.expire(10_001)
    assert len(states) == 2  # those that are connected


def test_receipts_of_clients_that_are_away_are_bounded_together():
    states = SessionStates(most_idle=100, most_receipts=100)
    for name in ("a", "b", "c"):
        state, _, _ = states.open(name, name, clean_start=False, expiry_s=10, now_ms=0)
        for packet_id in range(40):
            state.receipts[packet_id] = Receipt(
                packet_id, state.receipts, Slot(packet_id, 2, PublisherSession(ListenerLimits()))
            )
        states.close(name, name, 0)
    present = {name: states.open(name, "x", clean_start=False, expiry_s=10, now_ms=1)[1] for name in ("a", "b", "c")}
    assert present == {"a": False, "b": True, "c": True}, "the oldest was forgotten"
    assert states._kept_receipts == 0
