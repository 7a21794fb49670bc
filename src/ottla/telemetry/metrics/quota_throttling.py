"""What brokers say when a client has used more than its quota: `throttle_time_ms` (KIP-219).

The broker holds the client for that time by itself; nothing has to be done. It is reported because a producer that
suddenly fills its buffer, or a lag that grows, looks like a slow broker otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ottla.telemetry.logs.event_log import log_event
from ottla.telemetry.logs.rate_limit import RateLimit
from ottla.telemetry.metrics.hooks import Hooks

EVENT = "client_throttled"
_EVERY_MS = 10_000


class Throttling:
    """How often, and how long in all, brokers throttled one client. May be read and updated from any thread."""

    def __init__(
        self,
        fields: Mapping[str, object],
        *,
        now_ms: Callable[[], int],
        on_throttle: Callable[[int, int], None] | None = None,
    ) -> None:
        """`fields` say in the log whose client it is. `on_throttle` counts: it gets the broker and the time
        in milliseconds."""
        self._fields = dict(fields)
        self._now_ms = now_ms
        self._on_throttle = on_throttle
        self._limit = RateLimit(every_ms=_EVERY_MS)
        self._lock = threading.Lock()
        self.times = 0
        self.total_ms = 0
        self.last_ms = 0

    @classmethod
    def of_group(cls, group: str, *, client: str, now_ms: Callable[[], int], hooks: Hooks) -> Throttling:
        """Create one for a member of a group, which also counts the event `client_throttled`."""

        def count(broker: int, throttle_ms: int) -> None:
            hooks.event(group=group, event=EVENT)
            hooks.throttled(client=client, group=group, broker=broker, duration_s=throttle_ms / 1_000)

        return cls({"group": group}, now_ms=now_ms, on_throttle=count)

    @classmethod
    def of_producer(cls, client: str, servers: str, *, now_ms: Callable[[], int], hooks: Hooks) -> Throttling:
        """Create one for a producer."""

        def count(broker: int, throttle_ms: int) -> None:
            hooks.throttled(client=client, group="", broker=broker, duration_s=throttle_ms / 1_000)

        return cls({"servers": servers}, now_ms=now_ms, on_throttle=count)

    def __repr__(self) -> str:
        return f"Throttling(times={self.times}, total_ms={self.total_ms}, last_ms={self.last_ms})"

    def on_throttled(self, *, broker: int, throttle_ms: int) -> None:
        """Record that a broker throttles this client for that time; librdkafka passes 0 when throttling ends."""
        if throttle_ms <= 0:
            return
        with self._lock:
            self.times += 1
            self.total_ms += throttle_ms
            self.last_ms = throttle_ms
            held_back = self._limit.admit("", self._now_ms())
        if self._on_throttle is not None:
            self._on_throttle(broker, throttle_ms)
        if held_back is not None:
            log_event(
                EVENT,
                "warning",
                {**self._fields, "broker": broker, "throttle_ms": throttle_ms, "held_back": held_back},
            )
