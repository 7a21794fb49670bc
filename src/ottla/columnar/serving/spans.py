"""A span around each call of a handler of columns (`process <topic>`), with links to those that sent its rows.

As for batches of records. What failed as one is followed by its first row, as its attempts are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.app.delivery.handler_result import read_returned
from ottla.app.delivery.handler_spans import Attributes, HandlerSpans
from ottla.app.handler.handler_context import Context
from ottla.columnar.serving.frames import Frame
from ottla.columnar.serving.returned import split
from ottla.consumer.model.run import AnyRecord
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Dead, Outcomes, Retry
from ottla.telemetry.traces import conventions as names
from ottla.telemetry.traces.open_attempts import context_before
from ottla.telemetry.traces.propagation import recorded_parents

if TYPE_CHECKING:
    from ottla.telemetry.traces.open_span import OpenSpan
    from ottla.telemetry.traces.tracer_spans import TracerSpans

_TRACE_HEADER: Final = "traceparent"


class ColumnSpans(HandlerSpans):
    """The spans of one handler of columns: what it is called with is a `Frame`."""

    __slots__ = ()

    def __init__(self, *, group: str, handler: str) -> None:
        super().__init__(group=group, handler=handler, is_batch=True)

    def _begin_batch(self, spans: TracerSpans, frame: Any, context: Context) -> OpenSpan | None:
        from ottla.telemetry.traces.lazy_contexts import extracted
        from ottla.telemetry.traces.tracer_spans import MOST_LINKS

        def attributes() -> Attributes:
            found = self._attributes(context, topic, partition)
            found[names.BATCH_SIZE] = len(frame)
            found[names.OFFSET] = frame.rows.offsets[0]
            return found

        topic, partition = frame.topic_partition
        opened = spans.open_batch(topic, attributes)
        if opened is not None:
            first: AnyRecord = frame.rows[0]
            before = self._open.take(str(first.topic_partition), first.offset) if self._open else None
            opened.link([] if before is None else [context_before(before)])
            sent = frame.rows.with_header(_TRACE_HEADER, most=MOST_LINKS - (before is not None))
            opened.link(map(extracted, recorded_parents(sent)))
        return opened

    def _raised(self, span: OpenSpan, subject: Any, error: BaseException) -> None:
        super()._raised(span, [subject.rows[0]], error)

    def _failures_in(self, subject: Frame, returned: Any) -> list[tuple[AnyRecord, Failure]]:
        said = split(returned)[1]
        if isinstance(said, Outcomes):
            outcomes = [outcome for _, outcome in said.parts if isinstance(outcome, Retry | Dead)]
        else:
            found = read_returned(said)
            return [(subject.rows[0], found)] if isinstance(found, Failure) else []
        return [(subject.rows[0], Failure.of_outcome(outcomes[0]))] if outcomes else []
