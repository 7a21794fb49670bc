"""The records of a bulk send, as they go in and as they are listed when they fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.errors import InputError
from ottla.records import Headers

__all__ = ["FailedPart", "Outgoing", "outgoing"]


class Outgoing(NamedTuple):
    """One record of `send_many`, as `send` takes it. A plain tuple in the same order does as well."""

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def outgoing(topic: str, number: int, record: Any) -> Outgoing:
    """The record with this number of a bulk. Raises InputError for what is none.

    A str is a sequence too: "ab" would otherwise become the value "a" with the key "b".
    """
    if isinstance(record, tuple | list) and 1 <= len(record) <= len(Outgoing._fields):
        return Outgoing(*record)
    found = f"{type(record).__name__} of {len(record)}" if isinstance(record, tuple | list) else type(record).__name__
    raise InputError(
        f"{topic}: record {number} of send_many: expected a tuple of 1 to {len(Outgoing._fields)} "
        f"({', '.join(Outgoing._fields)}), found {found}"
    )


@dataclass(slots=True, eq=False)
class FailedPart:
    """One record of a bulk that failed, as the tracker lists it."""

    topic: str
    key: bytes | None
    failed_in: int = -1

    def done(self) -> bool:
        return True
