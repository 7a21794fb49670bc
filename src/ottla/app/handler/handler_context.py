"""The delivery's details that a handler can read beyond the record itself."""

from __future__ import annotations

from typing import Any

from ottla.clock import Clock, SystemClock
from ottla.consumer.model.run import Run
from ottla.records import TopicPartition


class Context:
    """One delivery. Made once per run; of a single record it says only how much time it has left.

    `attempt` is 1 for the first delivery; `state` is the app's own dictionary, shared by all its handlers.
    `transaction` is the open transaction of a handler with `offsets=` or `inbox=` in a database, else None. `out` is
    what a handler with `exactly_once=` sends with, else None.
    """

    __slots__ = (
        "_clock",
        "_run",
        "attempt",
        "expires_ms",
        "group",
        "handler",
        "out",
        "outputs",
        "state",
        "topic_partition",
        "transaction",
    )

    def __init__(
        self,
        *,
        group: str,
        handler: str,
        topic_partition: TopicPartition,
        attempt: int,
        state: dict[str, Any],
        clock: Clock | None = None,
        run: Run | None = None,
    ) -> None:
        self.group = group
        self.handler = handler
        self.topic_partition = topic_partition
        self.attempt = attempt
        self.state = state
        self.expires_ms: int | None = None
        """When the record that is handled now expires, in epoch milliseconds; the first of a batch. None: never."""
        self._clock = clock
        self._run = run
        self.transaction: Any = None if run is None else run.transaction
        self.outputs: Any = None if run is None else run.outputs
        self.out: Any = None

    def time_left_s(self) -> float | None:
        """Return seconds until the record expires, not less than 0; None for a record that does not. Call it in the
        handler: afterwards it describes another record."""
        if self.expires_ms is None:
            return None
        return max(0, self.expires_ms - (self._clock or SystemClock()).now_ms()) / 1_000

    @property
    def is_retry(self) -> bool:
        """Return whether `attempt` is above 1."""
        return self.attempt > 1

    def is_owner(self) -> bool:
        """Return whether this process still owns the messages of this delivery. False when the claim of an inbox could
        not be renewed in time; always true without an inbox."""
        return self._run is None or self._run.is_owner

    @property
    def lease_lost(self) -> bool:
        """True once the record of a queue belongs to another member: its lease ended before the handler did. What the
        handler returns is then dropped, and the record is handled again. A handler that takes long can ask."""
        return not self.is_owner()

    def __repr__(self) -> str:
        return f"Context({self.handler}, {self.topic_partition}, attempt={self.attempt})"
