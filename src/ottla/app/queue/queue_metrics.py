"""The metrics of a queue's leases: counted where they change, and measured once a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ottla.queues.core.effects import Effect, Leased, LeaseLost, Settled
from ottla.queues.io.lease_client import LeaseClient
from ottla.telemetry.metrics.measurements import LeaseMeasure, MemberMeasure
from ottla.telemetry.metrics.member_metrics import MemberMetrics

_OUTCOMES: Final = {"accept": "accepted", "release": "released", "reject": "rejected"}
"""By acknowledgement. A renewal settles nothing."""


class QueueMetrics:
    """Of one member. `count` is called where its decisions are made, `measure` in the client's thread of time."""

    def __init__(self, watch: MemberMetrics, client: LeaseClient, *, handler: str) -> None:
        self._watch = watch
        self._client = client
        self._handler = handler

    def count(self, effects: Sequence[Effect]) -> None:
        """Count what came of leases, per partition and outcome."""
        if not self._watch.hooks:
            return
        lost: Counter[str] = Counter()
        for effect in effects:
            match effect:
                case Leased(name, delivery_count, records):
                    self._watch.jobs_leased(name.topic, delivery_count, records)
                case Settled(name, kind, records) if kind in _OUTCOMES:
                    self._watch.jobs_settled(name.topic, _OUTCOMES[kind], records)
                case LeaseLost(lease):
                    lost[lease.topic_partition.topic] += 1
        for topic, records in lost.items():
            self._watch.jobs_settled(topic, "lost", records)

    def measure(self, now_ms: int) -> None:
        """Report the leases, if that is due."""
        if not self._watch.is_due(now_ms):
            return
        with self._client.lock:
            leases = self._client.member.leases
            oldest_ms = leases.oldest_ms
            measure = MemberMeasure(
                runs_in_flight={self._handler: sum(lease.has_worker and lease.has_begun for lease in leases)},
                leases=LeaseMeasure(
                    in_flight=len(leases), oldest_s=0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1_000
                ),
            )
        self._watch.measured(measure)
