"""What brokers answer to records that they do not take for now: a full disk, too few replicas.

The clients try such records again, silently, until delivery.timeout.ms has passed, and then say no more than that. What
is kept here names the broker's own error meanwhile: in the delivery's error, and in one event at the beginning and one
at the end. Pure: time is an argument. Not thread-safe; a shell reports from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.telemetry import log_event
from ottla_wire.protocol import ErrorCode

_MEANINGS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk of the partition's leader is full, or has failed",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas requires",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas requires",
    ErrorCode.REQUEST_TIMED_OUT: "the replicas in sync did not have the record in time",
}


class Refusals:
    """Topic → why brokers do not take its records for now."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._reasons: dict[str, tuple[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def answered(self, topic: str, code: ErrorCode, now_ms: int) -> None:
        """Record a broker's error for a record of this topic. Errors of elections, and those that fail a record for
        good, are not counted."""
        meaning = _MEANINGS.get(code)
        if meaning is not None:
            self.found(topic, f"{code.name} ({meaning})", now_ms)

    def found(self, topic: str, reason: str, now_ms: int) -> None:
        """Record that records of this topic are refused, for this reason."""
        if topic in self._reasons:
            self._reasons[topic] = reason, self._reasons[topic][1]
            return
        self._reasons[topic] = reason, now_ms
        log_event("writes_refused", "warning", {"client": self._client, "topic": topic, "error": reason})

    def taken(self, topic: str, now_ms: int) -> None:
        """Record that brokers accept records of this topic."""
        found = self._reasons.pop(topic, None)
        if found is not None:
            for_s = round(max(0, now_ms - found[1]) / 1_000, 1)
            log_event("writes_taken_again", "info", {"client": self._client, "topic": topic, "for_s": for_s})

    def topics(self) -> tuple[str, ...]:
        """Return those whose records are not taken."""
        return tuple(self._reasons)

    def reason(self, topic: str) -> str | None:
        """Return why records of this topic are not taken; None if that is unknown."""
        found = self._reasons.get(topic)
        return None if found is None else found[0]

    def problems(self) -> tuple[str, ...]:
        """Return the sentence that a service's health check reports meanwhile."""
        return tuple(
            f"{topic}: brokers do not take records: {reason}" for topic, (reason, _) in [*self._reasons.items()]
        )

    def one(self) -> str:
        """Return one refused topic with its reason, for errors that concern no single topic."""
        return next((f"{topic}: {reason}" for topic, (reason, _) in [*self._reasons.items()]), "")
