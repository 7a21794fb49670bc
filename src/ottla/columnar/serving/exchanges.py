"""What the answers of brokers say of them (`ottla.client.broker.*`): counted as they come, told every ten seconds.

A fetch and a join wait at the broker by design, and say nothing of the round trip. Each connection begins with one
ApiVersions, so those are the connections that were made. A broker is up if it has answered since it was told last:
fetches and heartbeats come more often than that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.telemetry import Listeners
from ottla.telemetry.measures import BrokerMeasure
from ottla_wire.protocol import ApiKey

_FIRST_MS: Final = 1_000
_EVERY_MS: Final = 10_000
_WAITING: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


@dataclass(slots=True)
class _Answers:
    """Of one address. `connects` and `timeouts` are those so far, sums those since it was told last."""

    connects: int = 0
    timeouts: int = 0
    answers: int = 0
    timed: int = 0
    timed_s: float = 0.0
    throttled_s: float = 0.0
    rtt_s: float = 0.0


class Exchanges:
    """The brokers of one member, by their addresses. Any thread may call what it hears."""

    def __init__(self, hooks: Listeners, *, client: str, now_ms: int) -> None:
        self._hooks = hooks
        self._client = client
        self._due_ms = now_ms + _FIRST_MS
        self._lock = threading.Lock()
        self._of: dict[str, _Answers] = {}

    def answered(self, address: str, api_key: ApiKey, seconds: float) -> None:
        """A broker has answered."""
        with self._lock:
            found = self._of.setdefault(address, _Answers())
            found.answers += 1
            found.connects += api_key is ApiKey.API_VERSIONS
            if api_key not in _WAITING:
                found.timed += 1
                found.timed_s += seconds

    def timed_out(self, address: str) -> None:
        """A broker has not answered in time."""
        with self._lock:
            self._of.setdefault(address, _Answers()).timeouts += 1

    def throttled(self, address: str, throttle_ms: int) -> None:
        """A broker has held its answer back for a quota, or will hold the next one back."""
        with self._lock:
            self._of.setdefault(address, _Answers()).throttled_s += throttle_ms / 1_000

    def is_due(self, now_ms: int) -> bool:
        """Whether to tell it now."""
        return now_ms >= self._due_ms

    def tell(self, now_ms: int, ids: Mapping[str, int], in_flight: Iterable[str]) -> None:
        """`ids`: of the brokers, by address. `in_flight`: where an answer is due, once for each."""
        self._due_ms = now_ms + _EVERY_MS
        if not self._hooks:
            return
        waiting = Counter(in_flight)
        with self._lock:
            told = [_measure(ids[name], of, waiting[name]) for name, of in self._of.items() if name in ids]
        self._hooks.brokers_measured(client=self._client, brokers=told)


def _measure(node_id: int, of: _Answers, in_flight: int) -> BrokerMeasure:
    """And begin to count anew."""
    if of.timed:
        of.rtt_s = of.timed_s / of.timed
    measure = BrokerMeasure(
        broker=str(node_id),
        is_up=of.answers > 0,
        rtt_s=of.rtt_s,
        requests_waiting=0,
        requests_in_flight=in_flight,
        connects=of.connects,
        timeouts=of.timeouts,
        throttle_s=of.throttled_s / of.answers if of.answers else 0.0,
    )
    of.answers = of.timed = 0
    of.timed_s = of.throttled_s = 0.0
    return measure
