"""Acknowledgements in the order of what they acknowledge.

Kafka acknowledges per partition, so the records of one connection are settled in any order. MQTT wants PUBACKs in the
order of the PUBLISHes (MQTT-4.6.0-2), and AMQP can acknowledge a contiguous prefix with one frame. A slot is added for
each message as it comes in; once it is settled, it is released as soon as all before it are.

An acknowledger belongs to one connection, or one AMQP channel. After its end it is void: what is settled later releases
nothing, because packet ids and delivery tags mean something else on the next connection.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

PENDING: Final = -2
UNKNOWN: Final = -1
"""Outcome of a message of which Kafka did not say whether it has it. It must not be acknowledged."""


class Answer(Protocol):
    """Records the response to the publisher of one message."""

    def settle(self, code: int, reason: str = "") -> None:
        """Record what became of the message: 0 for success, from 0x80 a refusal with its reason, or `UNKNOWN`."""


class Holder(Protocol):
    """The connection whose acknowledger has a slot."""

    def settled(self) -> None:
        """Record that a slot is settled: acknowledgements may be due."""


class Slot:
    """One message that waits for its acknowledgement. `number` is its packet id or delivery tag."""

    __slots__ = ("code", "holder", "number", "qos", "reason")

    def __init__(self, number: int, qos: int, holder: Holder) -> None:
        self.number = number
        self.qos = qos
        self.holder = holder
        self.code = PENDING
        """0 for success, from 0x80 a refusal, or `PENDING`, or `UNKNOWN`."""
        self.reason = ""

    def settle(self, code: int, reason: str = "") -> None:
        """Record what became of the message."""
        self.code = code
        self.reason = reason
        self.holder.settled()


class OrderedAcknowledger:
    """The slots of one connection."""

    __slots__ = ("_is_void", "_slots")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._is_void = False

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, slot: Slot) -> Slot:
        """Put a message's slot behind the others."""
        self._slots.append(slot)
        return slot

    def remove_last(self) -> None:
        """Take back the slot that was added last."""
        self._slots.pop()

    def released(self) -> list[Slot]:
        """Remove the slots that are settled and have none before them that is not. Returns them, in order."""
        slots = self._slots
        found = []
        while slots and slots[0].code != PENDING and not self._is_void:
            found.append(slots.popleft())
        return found

    def void(self) -> None:
        """End: nothing is released any more."""
        self._is_void = True
        self._slots.clear()
