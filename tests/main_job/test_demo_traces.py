"""The demo's traces: which flights are followed, what is read of what the processes print, and the trees."""

from __future__ import annotations

import json
from dataclasses import replace

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from ottla.cli.demo.model import Flight, is_flaky, is_truncated
from ottla.cli.demo.traces import Traces, followed, trace_trees

FLIGHT = Flight(
    carrier="UA",
    flight=1545,
    tailnum=None,
    origin="EWR",
    dest="IAH",
    scheduled_ms=0,
    dep_time=517,
    dep_delay=2,
    arr_delay=None,
    distance=1400,
)
CANCELLED = replace(FLIGHT, dep_time=None, dep_delay=None)


def printed_spans() -> list[str]:
    """Two traces, as the console exporter prints them: the second begins inside of the first's time."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    root = tracer.start_span("replay UA1545", start_time=1_000_000_000)
    inside = trace.set_span_in_context(root)
    other = tracer.start_span("replay UA1", start_time=1_500_000_000)
    first = tracer.start_span("process flights", inside, attributes={"ottla.attempt": 1}, start_time=1_020_000_000)
    first.add_event("record_retried")
    first.add_event("exception")
    first.set_status(Status(StatusCode.ERROR, "GateSystemBusy"))
    second = tracer.start_span("process flights", inside, attributes={"ottla.attempt": 2}, start_time=1_030_000_000)
    sent = tracer.start_span("send board", trace.set_span_in_context(second), start_time=1_031_000_000)
    for span, ended_ns in (
        (sent, 1_040_000_000),
        (second, 1_035_000_000),
        (first, 1_025_000_000),
        (other, 1_600_000_000),
    ):
        span.end(ended_ns)
    root.end(1_010_000_000)
    return [span.to_json() for span in exporter.get_finished_spans()]


def test_a_flight_that_is_retried_and_one_that_is_refused_are_followed():
    flaky = next(number for number in range(10_000) if is_flaky(number) and not is_truncated(number))
    flights = [FLIGHT] * (flaky + 10)
    assert followed(flights) == [flaky]
    flights[flaky + 5] = CANCELLED
    assert followed(flights) == [flaky, flaky + 5]
    flights[flaky] = CANCELLED
    assert followed(flights) == [flaky]
    assert followed([]) == []


def test_spans_are_read_from_between_other_lines():
    traces = Traces()
    take = traces.printed_by("handler")
    for text in printed_spans():
        for line in ("a line of the service", "}", *text.splitlines(), "{", '    "no": "span"', "}", "{"):
            take(line)
    assert len(traces.spans) == 5
    assert {span.service for span in traces.spans} == {"handler"}


def test_trees_have_children_below_their_parents_with_times_since_the_beginning():
    traces = Traces()
    for text in printed_spans():
        traces.add("handler", json.loads(text))
    trees = [
        [(line.depth, round(line.at_ms), round(line.took_ms), line.text) for line in tree]
        for tree in trace_trees(traces.spans)
    ]
    assert trees == [
        [
            (0, 0, 10, "replay UA1545"),
            (1, 20, 5, "process flights: GateSystemBusy (record_retried)"),
            (1, 30, 5, "process flights #2"),
            (2, 31, 9, "send board"),
        ],
        [(0, 0, 100, "replay UA1")],
    ]


def test_a_span_whose_parent_was_not_printed_is_shown_all_the_same():
    traces = Traces()
    for text in printed_spans():
        if "replay UA1545" not in text:
            traces.add("handler", json.loads(text))
    (tree, _) = trace_trees(traces.spans)
    assert [line.depth for line in tree] == [0, 0, 1]
