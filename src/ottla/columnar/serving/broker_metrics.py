"""Metrics per broker (`ottla.client.broker.*`): counted per response, reported every ten seconds.

A fetch and a join wait at the broker by design, and say nothing of the round trip. Each connection begins with one
ApiVersions, so those are the connections that were made. A broker is up if it has answered since it was measured last:
fetches and heartbeats come more often than that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.telemetry import Listeners
from ottla.telemetry.metrics.broker_responses import FIRST_TOLD_MS, TOLD_EVERY_MS, BrokerResponses
from ottla_wire.protocol import ApiKey

_WAITING: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


class BrokerMetrics:
    """The brokers of one member, by their addresses. Its methods may be called from any thread."""

    def __init__(self, hooks: Listeners, *, client: str, now_ms: int) -> None:
        self._hooks = hooks
        self._client = client
        self._due_ms = now_ms + FIRST_TOLD_MS
        self._lock = threading.Lock()
        self._of: dict[str, BrokerResponses] = {}

    def answered(self, address: str, api_key: ApiKey, seconds: float) -> None:
        """Record a response of a broker."""
        with self._lock:
            found = self._of.get(address)
            if found is None:
                found = self._of[address] = BrokerResponses()
            found.answers += 1
            found.connects += api_key is ApiKey.API_VERSIONS
            if api_key not in _WAITING:
                found.timed += 1
                found.timed_ms += seconds * 1_000

    def timed_out(self, address: str) -> None:
        """Record that a broker did not answer in time."""
        with self._lock:
            self._of.setdefault(address, BrokerResponses()).timeouts += 1

    def throttled(self, address: str, throttle_ms: int) -> None:
        """Record that a broker delayed its response for a quota, or will delay the next one."""
        with self._lock:
            self._of.setdefault(address, BrokerResponses()).throttled_ms += throttle_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether to report now."""
        return now_ms >= self._due_ms

    def report(self, now_ms: int, ids: Mapping[str, int], in_flight: Iterable[str]) -> None:
        """Report the state of each broker. `ids`: by address. `in_flight`: the address of each request without a
        response yet."""
        self._due_ms = now_ms + TOLD_EVERY_MS
        if not self._hooks:
            return
        waiting = Counter(in_flight)
        with self._lock:
            for name, of in self._of.items():
                of.in_flight = waiting[name]
            measured = [of.measure(ids[name], is_up=of.answers > 0) for name, of in self._of.items() if name in ids]
        self._hooks.brokers_measured(client=self._client, brokers=measured)
