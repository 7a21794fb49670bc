"""Spans of deliveries that failed, until it is decided what becomes of their records.

A handler ends before the consumer decides whether its record is retried, postponed, dead-lettered or stops its
partition. The span waits for that decision, which becomes an event of it, and is the parent of the dead letter. Its
duration is the handler's all the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ottla.telemetry.traces.open_span import OpenSpan

_MOST: Final = 10_000
"""Failed records of one group whose decision is not known. Beyond it the oldest spans end as they are."""

_MOST_EVENTS: Final = 32
_SHOWN: Final = ("attempts", "in_ms", "dead_letter_topic", "kind", "error", "reason")
"""Fields of a log event that its span event has too. A batch's span has the offset beside them."""

_EARLIER: Final = ("record_retried", "records_diverted", "dead_letter_budget_spent", "dead_letter_write_failed")
"""After these the record, or its copy in a retry or dead letter topic, is delivered again: its next span belongs to
this one."""

_groups: dict[str, OpenAttempts] = {}


@dataclass(slots=True, eq=False)
class FailedSpan:
    """One span, which several records of a batch may share."""

    span: OpenSpan
    ended_ns: int
    _: KW_ONLY
    is_batch: bool = False
    records: int = 0
    events: int = 0
    is_ended: bool = False

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.span.end(self.ended_ns)


class OpenAttempts:
    """The open spans of failed deliveries of one group, from all of its handlers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: OrderedDict[tuple[str, int], FailedSpan] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._failed)

    def keep(self, partition: str, offset: int, failed: FailedSpan) -> None:
        """Keep the span of a failed delivery open."""
        evicted: list[FailedSpan] = []
        with self._lock:
            before = self._failed.pop((partition, offset), None)
            self._failed[partition, offset] = failed
            failed.records += 1
            if before is not None:
                evicted.append(before)
            if len(self._failed) > _MOST:
                evicted.append(self._failed.popitem(last=False)[1])
        for span in evicted:
            self._release(span)

    def take(self, partition: str, offset: int) -> FailedSpan | None:
        """End the span of the failed delivery and return it: the record is delivered again."""
        with self._lock:
            failed = self._failed.pop((partition, offset), None)
        if failed is not None:
            self._release(failed)
        return failed

    def noted(self, event: str, fields: Mapping[str, object]) -> dict[str, str]:
        """Add the decision about a record to its span as an event. Returns the ids for the log line."""
        partition, offset = fields.get("partition"), fields.get("offset")
        if not isinstance(partition, str) or not isinstance(offset, int):
            return {}
        with self._lock:
            failed = self._failed.get((partition, offset))
            if failed is None:
                return {}
            failed.events += 1
            if event not in _EARLIER:
                del self._failed[partition, offset]
        if failed.events <= _MOST_EVENTS and not failed.is_ended:
            shown: dict[str, Any] = {name: fields[name] for name in _SHOWN if name in fields}
            failed.span.event(event, {**shown, "offset": offset} if failed.is_batch else shown)
        if event not in _EARLIER:
            self._release(failed)
        elif event == "record_retried" and not failed.is_batch:
            failed.end()
        return failed.span.ids

    @contextmanager
    def around_failed_write(self, partition: str, offset: int) -> Iterator[None]:
        """Make the span of the failed delivery current inside the block, if it is known."""
        with self._lock:
            failed = self._failed.get((partition, offset))
        if failed is None:
            yield
            return
        from ottla.telemetry.traces.tracer_spans import attach, detach

        token = attach(failed.span.context)
        try:
            yield
        finally:
            detach(token)

    def end_all(self) -> None:
        """End all spans, as the member ends."""
        with self._lock:
            left = list(self._failed.values())
            self._failed.clear()
        for failed in left:
            failed.end()

    def _release(self, failed: FailedSpan) -> None:
        failed.records -= 1
        if failed.records <= 0:
            failed.end()


def open_attempts(group: str) -> OpenAttempts:
    """Return the open attempts of a group in this process, shared by its members."""
    found = _groups.get(group)
    if found is None:
        found = _groups.setdefault(group, OpenAttempts())
    return found


def context_before(failed: FailedSpan) -> Context:
    """Return the context of an earlier delivery."""
    return failed.span.context
