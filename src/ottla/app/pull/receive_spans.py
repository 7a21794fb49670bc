"""A span for each run that a pulled consumer takes (`receive <topic>`), and the trace of one record for its caller.

What the caller does with a record is not seen here: `context_of` gives the context to begin a span of one's own in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.consumer.model.run import Run
from ottla.records import Record, packed_headers_of
from ottla.telemetry.traces import conventions as names
from ottla.telemetry.traces.active_tracing import active_spans
from ottla.telemetry.traces.propagation import recorded_parents

if TYPE_CHECKING:
    from opentelemetry.context import Context


def report_received(run: Run, *, group: str) -> None:
    """Make a span for records that were taken, with links to those that sent them."""
    spans = active_spans()
    if spans is None:
        return
    from ottla.telemetry.traces.lazy_contexts import extracted
    from ottla.telemetry.traces.tracer_spans import MOST_LINKS

    topic, partition = run.topic_partition
    attributes = names.base_attributes(names.RECEIVE, topic, PARTITION=str(partition), GROUP=group)
    attributes[names.BATCH_SIZE] = len(run.records)
    attributes[names.OFFSET] = run.records[0].offset
    span = spans.received(topic, attributes)
    if span is not None:
        sampled = recorded_parents(run.records)
        span.link(map(extracted, sampled[:MOST_LINKS]))
        span.end()


def context_of(record: Record[Any]) -> Context | None:
    """Return the trace that a record belongs to, as OpenTelemetry's context; None while the process has no SDK.

    with tracer.start_as_current_span("charge", context=context_of(record)): ...
    """
    if active_spans() is None:
        return None
    from ottla.telemetry.traces.lazy_contexts import extracted

    return extracted(packed_headers_of(record) or ())
