"""The demo's traces: a few flights are followed through all of its processes, and shown as trees with times.

The producer opens a span around the flights that are followed. The services record what belongs to those, and print it
as OpenTelemetry's console exporter does; Spark reads the trace from a column. The other flights cost nothing: a span
that begins no followed flight is not sampled, and what is sent in a trace that is not sampled is not recorded.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ottla.cli.demo.model import FLIGHTS_TOPIC, PIPELINE_GROUP, Flight, is_flaky, is_truncated
from ottla.telemetry.traces import conventions as names

SERVICE_ENVIRONMENT: Final = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    "OTEL_METRICS_EXPORTER": "none",
}
"""For `ottla run`: record what belongs to a trace that is recorded, and print it."""

_ROOT: Final = "replay "


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSpan:
    """One span, as a process of the demo printed it."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    begun_s: float
    ended_s: float
    attempt: int
    error: str
    events: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the fields shown beside the times."""
        attempt = f" #{self.attempt}" if self.attempt > 1 else ""
        error = f": {self.error}" if self.error else ""
        events = f" ({', '.join(self.events)})" if self.events else ""
        return f"{self.name}{attempt}{error}{events}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One line of a tree. Times are since the trace began."""

    at_ms: float
    took_ms: float
    service: str
    depth: int
    text: str


def followed(flights: Sequence[Flight]) -> list[int]:
    """Return the event ids that are followed: one that the handler takes at its third attempt, and one that it
    refuses."""
    kept = [
        next((number for number, flight in enumerate(flights) if _is_kept(number, flight)), None),
        next((number for number, flight in enumerate(flights) if _is_refused(number, flight)), None),
    ]
    return [number for number in kept if number is not None]


def _is_kept(number: int, flight: Flight) -> bool:
    is_whole = flight.dep_time is not None and flight.dep_delay is not None and not is_truncated(number)
    return is_flaky(number) and is_whole


def _is_refused(number: int, flight: Flight) -> bool:
    return flight.dep_time is None and not is_truncated(number)


class Traces:
    """The spans of all processes. What children print comes from threads of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[TracedSpan] = []

    @property
    def spans(self) -> list[TracedSpan]:
        with self._lock:
            return list(self._spans)

    def add(self, service: str, printed: Mapping[str, Any]) -> None:
        """Add a span as the SDK writes it in JSON."""
        span = _read(service, printed)
        with self._lock:
            self._spans.append(span)

    def printed_by(self, service: str) -> SpanLines:
        """Return the collector of the spans that a process prints with the console exporter."""
        return SpanLines(self, service)


class SpanLines:
    """Puts together the lines of a console exporter: an object begins with `{` and ends with `}` in a line's first
    column. Everything else that is printed passes by."""

    _MOST_LINES: Final = 10_000

    def __init__(self, traces: Traces, service: str) -> None:
        self._traces = traces
        self._service = service
        self._lines: list[str] = []

    def __call__(self, line: str) -> None:
        if line == "{":
            self._lines = []
        elif not self._lines or len(self._lines) > self._MOST_LINES:
            return
        self._lines.append(line)
        if line == "}":
            text, self._lines = "\n".join(self._lines), []
            try:
                self._traces.add(self._service, json.loads(text))
            except (ValueError, KeyError, TypeError):
                return  # something else that was printed in braces


class FollowedFlights:
    """Opens the span around a flight that is followed, in the process that produces."""

    def __init__(self, flights: Sequence[Flight], traces: Traces) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult

        class OnlyFollowed(Sampler):
            def should_sample(self, parent_context: Any, trace_id: int, name: str, *_: Any, **__: Any) -> Any:
                is_root = name.startswith(_ROOT)
                return SamplingResult(Decision.RECORD_AND_SAMPLE if is_root else Decision.DROP)

            def get_description(self) -> str:
                return "flights that are followed"

        provider = TracerProvider(sampler=ParentBased(OnlyFollowed()), shutdown_on_exit=False)
        provider.add_span_processor(_processor(lambda span: traces.add("producer", span)))
        trace.set_tracer_provider(provider)
        self._tracer = trace.get_tracer("ottla.demo")
        self._followed = frozenset(followed(flights))

    def around(self, event_id: int, flight: Flight) -> AbstractContextManager[Any]:
        if event_id not in self._followed:
            return nullcontext()
        return self._tracer.start_as_current_span(f"{_ROOT}{flight.carrier}{flight.flight}")


class BatchSpans:
    """Records a span for each traced flight of a mean. It lasts while the sinks of the flight's micro-batch write.

    `take` gets each span as the SDK writes it in JSON.
    """

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        from opentelemetry.sdk.trace import TracerProvider

        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(_processor(take))
        self._tracer = provider.get_tracer("ottla.demo")
        self._printed: set[str] = set()

    def print_new(self, traces: Sequence[Any], batch_id: int, *, begun_ns: int) -> None:
        """Print traces that were not printed before: means change often. `traces` are trace and span ids in
        hexadecimal."""
        from opentelemetry import trace

        for each in traces:
            if each.trace_id in self._printed:
                continue
            self._printed.add(each.trace_id)
            sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            sender = trace.SpanContext(int(each.trace_id, 16), int(each.span_id, 16), True, sampled)
            context = trace.set_span_in_context(trace.NonRecordingSpan(sender))
            span = self._tracer.start_span(
                f"process {FLIGHTS_TOPIC}, micro-batch {batch_id}",
                context,
                trace.SpanKind.CONSUMER,
                {names.GROUP: PIPELINE_GROUP, names.DESTINATION: FLIGHTS_TOPIC},
                start_time=begun_ns,
            )
            span.end()


def _processor(take: Callable[[dict[str, Any]], None]) -> Any:
    """Return what gives each span that ended to `take`."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Taken(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            for span in spans:
                take(json.loads(span.to_json()))
            return SpanExportResult.SUCCESS

    return SimpleSpanProcessor(Taken())


def trace_trees(spans: Iterable[TracedSpan]) -> list[list[TraceLine]]:
    """Return one tree per trace, in the order of their beginnings; children below their parents, in the order of
    theirs."""
    traces: dict[str, list[TracedSpan]] = {}
    for span in sorted(spans, key=lambda span: span.begun_s):
        traces.setdefault(span.trace_id, []).append(span)
    return [list(_tree(of_one)) for of_one in traces.values()]


def _tree(spans: Sequence[TracedSpan]) -> Iterator[TraceLine]:
    begun_s = spans[0].begun_s
    known = {span.span_id for span in spans}
    children: dict[str | None, list[TracedSpan]] = {}
    for span in spans:
        children.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    waiting = [(span, 0) for span in reversed(children.get(None, ()))]
    while waiting:
        span, depth = waiting.pop()
        yield TraceLine(
            at_ms=(span.begun_s - begun_s) * 1_000,
            took_ms=(span.ended_s - span.begun_s) * 1_000,
            service=span.service,
            depth=depth,
            text=span.text,
        )
        waiting += [(child, depth + 1) for child in reversed(children.get(span.span_id, ()))]


def _read(service: str, printed: Mapping[str, Any]) -> TracedSpan:
    attributes = printed["attributes"] or {}
    failed = printed["status"]["status_code"] == "ERROR"
    return TracedSpan(
        service=service,
        name=printed["name"],
        trace_id=printed["context"]["trace_id"],
        span_id=printed["context"]["span_id"],
        parent_id=printed["parent_id"],
        begun_s=datetime.fromisoformat(printed["start_time"]).timestamp(),
        ended_s=datetime.fromisoformat(printed["end_time"]).timestamp(),
        attempt=int(attributes.get(names.ATTEMPT, 1)),
        error=str(printed["status"].get("description", "error")) if failed else "",
        events=tuple(event["name"] for event in printed["events"] if event["name"] != "exception"),
    )
