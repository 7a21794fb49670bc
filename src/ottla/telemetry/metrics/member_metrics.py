"""Reports one group member to its listeners, for both shells. Time comes as argument."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

from ottla.telemetry.logs.log_events import EVENTS
from ottla.telemetry.metrics.hooks import Hooks
from ottla.telemetry.metrics.listeners import Listeners
from ottla.telemetry.metrics.measurements import MemberMeasure

MEASURE_EVERY_MS: Final = 1_000

_numbers = itertools.count(1)


class MemberMetrics:
    """The listeners of one member, and what is remembered for them."""

    def __init__(self, hooks: Hooks | None, *, group: str, client: str, now_ms: int) -> None:
        self.hooks = Listeners.of(hooks)
        self._group = group
        self._client = client
        self._member = str(next(_numbers))
        self._due_ms = now_ms
        self._rebalancing_since_ms = now_ms
        self._is_over = False

    def is_due(self, now_ms: int) -> bool:
        """Return whether the member is to be measured now: once a second, while anybody listens."""
        if self._is_over or now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + MEASURE_EVERY_MS
        return self.hooks.refresh()

    def measured(self, measure: MemberMeasure) -> None:
        """Report the state of the member."""
        self.hooks.measured(group=self._group, member=self._member, measure=measure)

    def ended(self) -> None:
        """Stop reporting: nothing of the member is shown any more. The loop that measures it may still run for a
        while."""
        self._is_over = True
        self.hooks.measured(group=self._group, member=self._member, measure=MemberMeasure())
        self.hooks.brokers_measured(client=self._client, brokers=())

    def noticed(self, event: str, fields: Mapping[str, object]) -> None:
        """Count a log event; of a failed record also the decision about it."""
        if not self.hooks:
            return
        self.hooks.event(group=self._group, event=event)
        row = EVENTS.get(event)
        if row is not None and row.before is not None:
            self.hooks.event(group=self._group, event=row.before)
        partition, kind, attempts = fields.get("partition"), fields.get("kind"), fields.get("attempts")
        if isinstance(partition, str) and isinstance(kind, str) and isinstance(attempts, int):
            topic = partition.rpartition("-")[0]
            self.hooks.decided(group=self._group, topic=topic, event=event, kind=kind, attempts=attempts)

    def jobs_leased(self, topic: str, delivery_count: int, records: int) -> None:
        """Count records that a broker leased."""
        self.hooks.jobs_leased(group=self._group, topic=topic, delivery_count=delivery_count, records=records)

    def jobs_settled(self, topic: str, outcome: str, records: int) -> None:
        """Count leases that ended."""
        self.hooks.jobs_settled(group=self._group, topic=topic, outcome=outcome, records=records)

    def assigned(self, partitions: int, now_ms: int) -> None:
        """Count partitions that were assigned."""
        self._rebalanced("assigned", partitions, self._rebalancing_since_ms, now_ms)
        self._rebalancing_since_ms = now_ms

    def partitions_left(self, kind: str, partitions: int, *, began_ms: int, now_ms: int) -> None:
        """Count partitions that were ``revoked`` or ``lost``, now that they are released."""
        self._rebalancing_since_ms = began_ms
        self._rebalanced(kind, partitions, began_ms, now_ms)

    def committed(self, *, partitions: int, sent_ms: int, now_ms: int, is_fenced: bool | None = None) -> None:
        """Count the response to a commit; with `is_fenced` it was refused."""
        if not self.hooks:
            return
        if is_fenced is None:
            self.hooks.committed(group=self._group, partitions=partitions)
        error = "" if is_fenced is None else "fenced" if is_fenced else "refused"
        self.hooks.commit_answered(group=self._group, duration_s=max(0, now_ms - sent_ms) / 1_000, error=error)

    def _rebalanced(self, kind: str, partitions: int, since_ms: int, now_ms: int) -> None:
        self.hooks.rebalanced(
            group=self._group, kind=kind, partitions=partitions, duration_s=max(0, now_ms - since_ms) / 1_000
        )
