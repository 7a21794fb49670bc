"""What headers say about a trace, and what is put into them."""

from __future__ import annotations

from contextvars import copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, get_current
from opentelemetry.propagators.composite import CompositePropagator
from span_trees import recorded_spans

from ottla import SerializationError
from ottla.producer.tracing import send_spans, with_added
from ottla.telemetry.traces.lazy_contexts import LazyContext, extracted, lazily, make_current
from ottla.telemetry.traces.propagation import parent_is_sampled, with_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-".encode()

header = st.tuples(
    st.sampled_from(["traceparent", "tracestate", "baggage", "shop"]), st.one_of(st.none(), st.binary(max_size=80))
)


@pytest.mark.parametrize(
    ("flags", "sampled"), [(b"00", False), (b"01", True), (b"02", False), (b"03", True), (b"ff", True), (b"0e", False)]
)
def test_the_last_digit_says_whether_the_trace_is_recorded(flags: bytes, sampled: bool) -> None:
    assert parent_is_sampled([("a", b"1"), ("traceparent", PARENT + flags)]) is sampled


@pytest.mark.parametrize("headers", [None, [], [("a", b"1")], [("traceparent", None)], [("traceparent", b"00-short")]])
def test_without_a_readable_trace_it_is_not_known(headers: list[tuple[str, bytes | None]] | None) -> None:
    assert parent_is_sampled(headers) is None


@given(st.lists(header, max_size=6))
def test_headers_of_any_bytes_are_read_without_an_error(headers: list[tuple[str, bytes | None]]) -> None:
    parent_is_sampled(headers)
    own = copy_context()
    own.run(make_current, lazily(headers))
    found = own.run(get_current)

    assert isinstance(found, LazyContext)
    assert (
        trace.get_current_span(found).get_span_context()
        == trace.get_current_span(extracted(headers)).get_span_context()
    )
    assert dict(found.items()) == dict(found.copy()) == dict(found)
    assert "current" not in found


hex_text = st.text("0123456789abcdefAF _-", min_size=14, max_size=34)
almost_usual = st.builds(
    "{}-{}-{}-{}{}".format,
    st.sampled_from(["00", "01", "ff", "0", " 00"]),
    st.one_of(st.just(TRACE), st.just("0" * 32), hex_text),
    st.one_of(st.just("b7ad6b7169203331"), st.just("0" * 16), hex_text),
    st.sampled_from(["00", "01", "02", "ff", "0", "FF"]),
    st.sampled_from(["", "\n", " ", "-more"]),
)


@given(
    st.lists(st.tuples(st.sampled_from(["traceparent", "shop"]), almost_usual.map(str.encode)), max_size=3),
    st.sampled_from([[], [("tracestate", b"shop=7")], [("baggage", b"user=ann")]]),
)
def test_what_is_read_here_is_what_the_propagator_reads(
    headers: list[tuple[str, bytes]], more: list[tuple[str, bytes]]
) -> None:
    carrier: dict[str, list[str]] = {}
    for name, value in headers + more:
        carrier.setdefault(name, []).append(value.decode())
    theirs = propagate.extract(carrier, Context())

    ours = extracted(headers + more)
    assert trace.get_current_span(ours).get_span_context() == trace.get_current_span(theirs).get_span_context()
    assert trace.get_current_span(ours).get_span_context().is_remote == bool(
        trace.get_current_span(theirs).get_span_context().is_remote
    )
    assert baggage.get_all(ours) == baggage.get_all(theirs)


@pytest.mark.parametrize("textmap", [CompositePropagator([W3CBaggagePropagator()]), CompositePropagator([])])
def test_a_service_that_reads_no_traceparent_sees_none(textmap: CompositePropagator) -> None:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(textmap)
    try:
        found = extracted([("traceparent", PARENT + b"01")])
    finally:
        propagate.set_global_textmap(before)

    assert not trace.get_current_span(found).get_span_context().is_valid


def test_a_context_comes_behind_the_headers_that_were_given() -> None:
    given = [("a", b"1")]

    assert with_context(given, {"traceparent": "t", "baggage": "x=1"}) == [
        *given,
        ("traceparent", b"t"),
        ("baggage", b"x=1"),
    ]


def test_a_context_that_the_caller_gave_is_not_mixed_with_another() -> None:
    given = [("a", b"1"), ("traceparent", b"mine")]
    context = {"traceparent": "theirs", "tracestate": "theirs=1", "baggage": "x=1"}

    assert with_context(given, context) == [*given, ("baggage", b"x=1")]
    assert with_added(given, [("traceparent", b"theirs"), ("tracestate", b"theirs=1")]) == given


def test_no_producer_makes_spans_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)  # another test of this process may have set one for good
    assert send_spans("billing") is None


def test_headers_that_are_none_are_refused_as_without_spans() -> None:
    with recorded_spans() as recorder:
        spans = send_spans("billing")
        assert spans is not None
        with pytest.raises(SerializationError, match=r"orders: header shop: expected bytes"):
            spans.begin("orders", None, b"1", [("shop", "7")])  # type: ignore[list-item]

    assert recorder.spans == []


def test_a_record_that_carries_a_trace_is_sent_on_inside_of_it() -> None:
    own = [("traceparent", PARENT + b"01")]
    with recorded_spans() as recorder:
        spans = send_spans("billing")
        assert spans is not None
        headers, span = spans.begin("orders", None, b"1", own)
        assert span is not None
        span.delivered(3, 41)

    assert headers == own
    (sent,) = recorder.spans
    assert f"{sent.context.trace_id:032x}" == TRACE
    assert dict(sent.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.system.name": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.client.id": "billing",
        "kafka.offset": 41,
    }


def test_both_families_of_names_are_set_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http,messaging/dup")
    with recorded_spans() as recorder:
        spans = send_spans(None)
        assert spans is not None
        _, span = spans.begin("orders", None, None, ())
        assert span is not None
        span.delivered(0, 7)

    attributes = recorder.spans[0].attributes or {}
    assert attributes["kafka.offset"] == attributes["messaging.kafka.offset"] == 7
    assert attributes["kafka.message.tombstone"] is attributes["messaging.kafka.message.tombstone"] is True


def test_declaring_and_sending_imports_no_sdk_and_no_api() -> None:
    import subprocess
    import sys

    code = (
        "import sys, ottla\n"
        "from ottla import App, Producer\n"
        "app = App('billing')\n"
        "app.handler('orders')(lambda value: None)\n"
        "Producer('127.0.0.1:1')._spans\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
        "import os; os._exit(0) if not sys.stdout.flush() else None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
