"""How a client of librdkafka leaves its group, whatever it was doing there."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from ottla.app.member.member_core import HINDERED_S, LEAVE_S
from ottla.telemetry import log_event
from ottla.wire_client.group.group_offsets import leave_group

_NAME_S: Final = 1.0
"""How long the name is waited for that a coordinator gives at once (KIP-394)."""


def close_client(client: Any, *, group: str, settings: Mapping[str, Any]) -> None:
    """Leave the group. Without a broker librdkafka takes half a minute for that, longer than a supervisor waits before
    it kills: then it is left to itself.

    The coordinator keeps the place of a member that it knows until its session ends, and a rebalance waits for
    it. librdkafka says goodbye by the name that the coordinator gave, so one that is being let in waits for that. It
    says it on the connection on which its JoinGroup waits for the others, behind that: a close that this holds up is
    helped by a goodbye on a connection of our own.
    """
    is_static = bool(settings.get("group.instance.id"))
    is_classic = settings.get("group.protocol", "classic") == "classic"
    member_id = None if is_static or not is_classic else _name_of(client)
    leave = client.close if is_static else lambda: _unsubscribe_and_close(client)
    closing = _begin(leave, name=f"ottla-{group}-close")
    closing.join(HINDERED_S)
    if closing.is_alive() and member_id:
        _begin(lambda: leave_group(settings, group=group, member_id=member_id), name=f"ottla-{group}-goodbye")
    closing.join(LEAVE_S - HINDERED_S)
    if closing.is_alive():
        log_event("client_close_abandoned", "warning", {"group": group, "after_s": LEAVE_S})


def _begin(target: Any, *, name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def _name_of(client: Any) -> str | None:
    """Return the id of the member; None when there is none after a second: no broker has let it in."""
    deadline = time.monotonic() + _NAME_S
    try:
        while not (name := client.memberid()) and time.monotonic() < deadline:
            time.sleep(0.005)
    except (KafkaException, RuntimeError):
        return None
    return name or None


def _unsubscribe_and_close(client: Any) -> None:
    """End the subscription first, so that no rebalance is pending when the client closes.

    An assignment that librdkafka delivers after its group handler has terminated is confirmed to a queue that nobody
    serves (librdkafka issue 4884). confluent-kafka confirms it with the interpreter's lock held, so the whole process
    stands still, signal handlers included. A static member must not unsubscribe: that would end its membership
    (KIP-345).
    """
    try:
        client.unsubscribe()
        deadline = time.monotonic() + LEAVE_S / 2
        while (client.poll(0.001) is not None or client.assignment()) and time.monotonic() < deadline:
            pass  # what was fetched is dropped: it was not handled, so it is not committed
    except (KafkaException, RuntimeError):
        pass  # closing is what remains to be done
    client.close()
