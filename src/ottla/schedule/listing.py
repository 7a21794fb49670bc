"""Lists the waiting messages of a schedule from all its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.records import Record
from ottla.schedule.headers import ScheduledMessage
from ottla.schedule.slot import OwnedSlot
from ottla.schedule.wheel import WHEEL


def waiting_in(records: Iterable[Record[Any]]) -> list[ScheduledMessage]:
    """Return the messages that are neither delivered nor cancelled, the next one first. Records of one slot must be in
    order; slots may be in any order."""
    slots: dict[int, OwnedSlot] = {}
    for record in records:
        if record.partition not in slots:
            slots[record.partition] = OwnedSlot(WHEEL, record.partition)
        slots[record.partition].take_in(record)
    found = [message for slot in slots.values() for message in slot.waiting.values()]
    return sorted(found, key=lambda message: (message.due_ms, message.id))
