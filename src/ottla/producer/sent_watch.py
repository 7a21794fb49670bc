"""Reports of a producer to its listeners: settled records, queue size, and the latency of sampled records. Counted
while deliveries are swept, some hundred at a time, never per record. Time is an argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from ottla.producer.bulk import BulkState
from ottla.telemetry.metrics.listeners import Listeners

_EVERY_MS: Final = 1_000
_TOPIC: Final = attrgetter("topic")
_ERROR: Final = attrgetter("_error")


class SentWatch:
    """The listeners of one producer."""

    def __init__(self, hooks: Any, *, client: str, now_ms: Callable[[], int]) -> None:
        self.hooks = Listeners.of(hooks)
        self._client = client
        self._now_ms = now_ms
        self._due_ms = 0
        self.wants_sample = False
        """Whether the next send is to be timed."""

    def __bool__(self) -> bool:
        return bool(self.hooks)

    def look(self, queued: Callable[[], int]) -> None:
        """Let another send be timed, some times a second, and report what is queued when that is due."""
        now_ms = self._now_ms()
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + _EVERY_MS
            if self.hooks.refresh():
                self.hooks.producer_measured(client=self._client, queued_records=queued())
        self.wants_sample = bool(self.hooks)

    def timed(self, then: Callable[[Any], None] | None) -> Callable[[Any], None]:
        """Return a callback for the record that is sent now, which is called when it is settled and then calls
        `then`."""
        self.wants_sample = False
        began_ms = self._now_ms()

        def settled(delivery: Any) -> None:
            if delivery._error is None:
                duration_s = max(0, self._now_ms() - began_ms) / 1_000
                self.hooks.send_timed(client=self._client, topic=delivery.topic, duration_s=duration_s)
            if then is not None:
                then(delivery)

        return settled

    def settled(self, deliveries: Sequence[Any]) -> None:
        """Remove settled deliveries and bulks."""
        if not self.hooks:
            return
        kinds = {kind for kind in set(map(type, deliveries)) if issubclass(kind, BulkState)}
        bulks = [each for each in deliveries if type(each) in kinds] if kinds else []
        singles = [each for each in deliveries if type(each) not in kinds] if kinds else deliveries
        counts = Counter(map(_TOPIC, singles))
        failed: Counter[tuple[str, str]] = Counter()
        if any(map(_ERROR, singles)):
            failed.update((each.topic, type(each._error).__name__) for each in singles if each._error is not None)
        for bulk in bulks:
            counts[bulk.topic] += bulk.sent
            failed.update((bulk.topic, type(failure.error).__name__) for _, failure in bulk._failed)
        for topic, records in counts.items():
            acknowledged = records - sum(count for (of, _), count in failed.items() if of == topic)
            if acknowledged > 0:
                self.hooks.sent(client=self._client, topic=topic, records=acknowledged, error="")
        for (topic, error), count in failed.items():
            self.hooks.sent(client=self._client, topic=topic, records=count, error=error)

    def ended(self) -> None:
        """Record that nothing is queued any more."""
        self.hooks.producer_measured(client=self._client, queued_records=0)
        self.hooks.brokers_measured(client=self._client, brokers=())
        self.hooks.batches_measured(client=self._client, batches=())
