"""The trace context of records as a column: what OpenTelemetry's own propagator reads, no more and no less."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ottla import Json
from ottla.errors import ConfigError
from ottla.spark import decode, split, with_trace_context
from ottla.spark.values.trace_context import TRACE_COLUMN

pytestmark = pytest.mark.spark

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENTS = [
    f"00-{TRACE}-{SPAN}-01",
    f"00-{TRACE}-{SPAN}-00",
    f"00-{TRACE}-{SPAN}-ff",
    f"00-{TRACE}-{SPAN}-0a",
    f" \t00-{TRACE}-{SPAN}-01 ",
    f"00-{TRACE}-{SPAN}-01-more",
    f"01-{TRACE}-{SPAN}-01-more",
    f"cc-{TRACE}-{SPAN}-03",
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE.upper()}-{SPAN}-01",
    f"00-{TRACE[1:]}-{SPAN}-01",
    f"0-{TRACE}-{SPAN}-01",
    f"00-{TRACE}-{SPAN}-1",
    f"00-{TRACE}-{SPAN}",
    "",
    "00",
    "-" * 55,
    "x" * 10_000,
]


def read_by_opentelemetry(parent: str) -> tuple[str, str, bool] | None:
    found = TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())
    own = trace.get_current_span(found).get_span_context()
    return (f"{own.trace_id:032x}", f"{own.span_id:016x}", own.trace_flags.sampled) if own.is_valid else None


def contexts(frame):
    rows = with_trace_context(frame).orderBy("offset").select(TRACE_COLUMN).collect()
    return [row[0] and tuple(row[0]) for row in rows]


def test_a_context_is_what_opentelemetry_reads(topics, kafka, make_topic):
    topic = make_topic()
    for parent in PARENTS:
        kafka.produce(topic, [b"1"], headers=[("traceparent", parent.encode())])
    found = contexts(topics.read(topic, includeHeaders=True))

    assert [each and each[:3] for each in found] == [read_by_opentelemetry(parent) for parent in PARENTS]
    assert sum(each is not None for each in found) > 5


def test_headers_that_hold_no_context_give_null_and_the_first_that_has_a_value_counts(topics, kafka, make_topic):
    topic = make_topic()
    good, other = f"00-{TRACE}-{SPAN}-01".encode(), f"00-{TRACE[::-1]}-{SPAN}-00".encode()
    given = [
        [],
        [("traceparent", None)],
        [("traceparent", b"\xff\xfe" * 30)],
        [("Traceparent", good)],
        [("traceparent", None), ("tracestate", b"a=1"), ("traceparent", good), ("traceparent", other)],
        [("traceparent", b"nonsense"), ("traceparent", good)],
    ]
    for headers in given:
        kafka.produce(topic, [b"1"], headers=headers)

    state = (TRACE, SPAN, True, "a=1")
    assert contexts(topics.read(topic, includeHeaders=True)) == [None, None, None, None, state, None]


def test_rows_keep_their_context_when_they_are_decoded(topics, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, [b"1", b"no json"], headers=[("traceparent", f"00-{TRACE}-{SPAN}-01".encode())])
    good, bad = split(decode(topics.read(topic, includeHeaders=True), value=Json(int)))
    traced = [row[0] for frame in (good, bad) for row in with_trace_context(frame).select("trace_context.*").collect()]
    assert traced == [TRACE, TRACE]


def test_it_needs_the_headers_and_a_name_that_is_free(topics, make_topic):
    frame = topics.read(make_topic(), includeHeaders=True)
    with pytest.raises(ConfigError, match="includeHeaders"):
        with_trace_context(frame.drop("headers"))
    with pytest.raises(ConfigError, match="already"):
        with_trace_context(with_trace_context(frame))
