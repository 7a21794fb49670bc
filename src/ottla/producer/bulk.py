"""The records of a bulk send, as they go in and as they are listed when they fail."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.records import Headers

__all__ = ["FailedPart", "Outgoing"]


class Outgoing(NamedTuple):
    """One record of `send_many`, as `send` takes it. A plain tuple in the same order does as well."""

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class FailedPart(NamedTuple):
    """One record of a bulk that failed, as the tracker lists it."""

    topic: str
    key: bytes | None

    def done(self) -> bool:
        return True
