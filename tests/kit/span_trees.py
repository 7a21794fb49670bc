"""Spans as text trees: what a test compares of a trace. Names of topics are shortened to what the test calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler


class Recorder:
    """The spans of a test, from the SDK's own exporter in memory."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.provider = provider
        self.tracer = provider.get_tracer("test")
        self._exporter = exporter

    @property
    def spans(self) -> list[ReadableSpan]:
        """All that have ended, in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, start: str) -> list[ReadableSpan]:
        """Those whose name begins like this."""
        return [span for span in self.spans if span.name.startswith(start)]

    def tree(self, topics: Mapping[str, str]) -> list[str]:
        """One line per span, children indented below their parents. `topics`: real name → name in the test."""
        spans = self.spans
        ids = {span.context.span_id for span in spans}
        roots = [span for span in spans if span.parent is None or span.parent.span_id not in ids]
        lines = [line for root in roots for line in _lines(root, spans, 0)]
        for name in sorted(topics, key=len, reverse=True):
            lines = [line.replace(name, topics[name]) for line in lines]
        return lines


def _lines(span: ReadableSpan, spans: list[ReadableSpan], depth: int) -> Iterator[str]:
    yield "  " * depth + _line(span)
    for child in spans:
        if child.parent is not None and child.parent.span_id == span.context.span_id:
            yield from _lines(child, spans, depth + 1)


def _line(span: ReadableSpan) -> str:
    attributes = span.attributes or {}
    parts = [span.name]
    if int(str(attributes.get("ottla.attempt", 1))) > 1:
        parts.append(f"#{attributes['ottla.attempt']!s}")
    if "messaging.batch.message_count" in attributes:
        parts.append(f"x{attributes['messaging.batch.message_count']!s}")
    if "ottla.outcome" in attributes:
        parts.append(str(attributes["ottla.outcome"]))
    if not span.status.is_ok:
        parts.append(f"!{span.status.description}")
    if span.links:
        parts.append(f"links={len(span.links)}")
    events = [event.name for event in span.events if event.name != "exception"]
    return " ".join([*parts, *(f"[{name}]" for name in events)])


@contextmanager
def recorded_spans(*, sampler: Sampler | None = None, processor: SpanProcessor | None = None) -> Iterator[Recorder]:
    """A real tracer provider, as the process's own while it lasts; `processor` hears of spans first."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    if processor is not None:
        provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    globals_of_trace: Any = trace
    before = globals_of_trace._TRACER_PROVIDER  # the API lets it be set once in a process
    globals_of_trace._TRACER_PROVIDER = provider
    try:
        yield Recorder(provider, exporter)
    finally:
        globals_of_trace._TRACER_PROVIDER = before
        provider.shutdown()
