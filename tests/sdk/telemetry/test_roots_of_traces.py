"""First spans of traces under a ratio: what the SDK would have decided, without asking it each time."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.propagators.textmap import CarrierT, Setter, TextMapPropagator, default_setter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from span_trees import recorded_spans

from ottla.producer.tracing import SendSpans, send_spans
from ottla.records import Header
from ottla.telemetry.traces.active_tracing import active_spans
from ottla.telemetry.traces.sampled_out_spans import RANDOM, given_ids


def spans_now() -> SendSpans:
    found = send_spans("billing")
    assert found is not None
    return found


def context_in(headers: Sequence[Header] | None) -> trace.SpanContext:
    """What OpenTelemetry's own propagator reads."""
    carrier = {name: (value or b"").decode() for name, value in headers or ()}
    found = TraceContextTextMapPropagator().extract(carrier, context.Context())
    return trace.get_current_span(found).get_span_context()


@contextmanager
def current(made: context.Context) -> Iterator[None]:
    token = context.attach(made)
    try:
        yield
    finally:
        context.detach(token)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("with_parents", [True, False])
def test_a_ratio_records_what_its_sampler_says(ratio: float, with_parents: bool) -> None:
    sampler: Sampler = TraceIdRatioBased(ratio)
    with recorded_spans(sampler=ParentBased(sampler) if with_parents else sampler) as recorder:
        sends = spans_now()
        sent = [sends.begin("orders", None, b"1", None) for _ in range(300)]
        for _, span in sent:
            if span is not None:
                span.delivered(0, 1)

    assert len({context_in(headers).trace_id for headers, _ in sent}) == 300
    for headers, span in sent:
        own = context_in(headers)
        said = sampler.should_sample(None, own.trace_id, "send orders")
        assert said.decision.is_sampled() is own.trace_flags.sampled is (span is not None)
    recorded = {own.trace_id for headers, _ in sent if (own := context_in(headers)).trace_flags.sampled}
    assert {span.context.trace_id for span in recorder.spans} == recorded
    assert (0 < len(recorded) < 300) if ratio == 0.3 else (len(recorded) == 300 * ratio)


def test_a_dropped_root_has_the_flags_that_the_sdk_gives_it() -> None:
    with recorded_spans(sampler=TraceIdRatioBased(0.0)) as recorder:
        ours, span = spans_now().begin("orders", None, b"1", None)
        theirs = recorder.provider.get_tracer("other").start_span("send orders").get_span_context()

    assert span is None
    assert context_in(ours).trace_flags == theirs.trace_flags
    assert context_in(ours).trace_state == theirs.trace_state


def test_dropped_roots_have_ids_of_their_own() -> None:
    with recorded_spans(sampler=TraceIdRatioBased(0.0)):
        sends = spans_now()
        found = [context_in(sends.begin("orders", None, b"1", None)[0]) for _ in range(200)]

    assert all(each.is_valid for each in found)
    assert len({each.trace_id for each in found}) == len({each.span_id for each in found}) == 200


FORKS = """
import os
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from ottla.telemetry.traces.tracer_spans import TracerSpans

spans = TracerSpans(TracerProvider(sampler=TraceIdRatioBased(0.0)))
first = spans.root()
pid = os.fork()
for _ in range(300):
    os.write(1, spans.root() + b"\\n")  # in one piece: the other process writes to the same pipe
if pid:
    os.waitpid(pid, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_process_does_not_use_ids_that_its_parent_has_drawn() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)

    found = done.stdout.split()
    assert len(found) == len(set(found)) == 600


def test_threads_that_find_a_provider_at_once_share_what_makes_its_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_spans(sampler=TraceIdRatioBased(0.0)) as recorder:
        found, get_tracer = [], recorder.provider.get_tracer
        other = threading.Thread(target=lambda: found.append(active_spans()))

        def meanwhile(*arguments: Any, **named: Any) -> trace.Tracer:
            if other.ident is None:
                other.start()
                other.join(0.2)  # it waits for this thread, or is here as well
            return get_tracer(*arguments, **named)

        monkeypatch.setattr(recorder.provider, "get_tracer", meanwhile)
        found.append(active_spans())
        other.join()

    assert found[0] is not None
    assert found[0] is found[1]


def test_a_tracer_that_is_given_out_twice_draws_its_ids_as_before() -> None:
    with recorded_spans(sampler=TraceIdRatioBased(0.0)) as recorder:
        tracer = recorder.provider.get_tracer("ottla")
        first, again = given_ids(tracer), given_ids(tracer)

    assert first is not None
    assert again is first
    assert again.is_the_sdks


class Counting(IdGenerator):
    """A service's own ids."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def generate_trace_id(self) -> int:
        return next(self.numbers) << 64 | 7

    def generate_span_id(self) -> int:
        return next(self.numbers)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_ids_come_from_the_generator_of_the_provider(ratio: float) -> None:
    with recorded_spans(sampler=TraceIdRatioBased(ratio)) as recorder:
        recorder.provider.id_generator = Counting()
        headers, _ = spans_now().begin("orders", None, b"1", None)

    found = context_in(headers)
    assert (found.trace_id, found.trace_flags & RANDOM) == (1 << 64 | 7, 0)
    assert found.span_id in (2, 3)  # at a root that is recorded the SDK asks for another one


def test_no_attribute_is_made_for_a_root_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> dict[str, str]:
        raise AssertionError("made")

    monkeypatch.setattr(SendSpans, "_attributes", refuse)
    with recorded_spans(sampler=ParentBased(TraceIdRatioBased(0.0))):
        headers, span = spans_now().begin("orders", b"k", None, [("shop", b"7")])

    assert span is None
    assert [name for name, _ in headers or ()] == ["shop", "traceparent"]


def test_a_traceparent_of_the_caller_stays_alone_at_a_dropped_root() -> None:
    with recorded_spans(sampler=TraceIdRatioBased(0.0)):
        headers, span = spans_now().begin("orders", None, b"1", [("traceparent", b"mine")])

    assert (headers, span) == ([("traceparent", b"mine")], None)


def test_threads_do_not_take_each_others_decisions() -> None:
    found: list[tuple[Sequence[Header] | None, bool]] = []

    def send() -> None:
        for _ in range(200):
            headers, span = sends.begin("orders", None, b"1", None)
            found.append((headers, span is not None))

    with recorded_spans(sampler=ParentBased(TraceIdRatioBased(0.5))):
        sends = spans_now()
        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert len(found) == 800
    assert len({context_in(headers).trace_id for headers, _ in found}) == 800
    assert all(context_in(headers).trace_flags.sampled is recorded for headers, recorded in found)


class Described(Sampler):
    """Says of itself what a ratio says, and is something else."""

    def should_sample(self, *args: object, **kwargs: object) -> SamplingResult:
        return ALWAYS_ON.should_sample(*args, **kwargs)  # type: ignore[arg-type]

    def get_description(self) -> str:
        return "TraceIdRatioBased{0.0}"


@pytest.mark.parametrize(("sampler", "is_recorded"), [(Described(), True), (ALWAYS_ON, True), (ALWAYS_OFF, False)])
def test_any_other_sampler_is_asked_itself(sampler: Sampler, is_recorded: bool) -> None:
    with recorded_spans(sampler=sampler):
        headers, span = spans_now().begin("orders", None, b"1", None)

    assert (span is not None) is context_in(headers).trace_flags.sampled is is_recorded


class Shop(TextMapPropagator):
    """A propagator of somebody's own."""

    def extract(
        self, carrier: CarrierT, context: context.Context | None = None, getter: object = None
    ) -> context.Context:  # type: ignore[override]
        return context or propagate.Context()

    def inject(
        self,
        carrier: CarrierT,
        context: context.Context | None = None,
        setter: Setter[CarrierT] = default_setter,  # type: ignore[assignment]
    ) -> None:
        setter.set(carrier, "x-shop-trace", "7")

    @property
    def fields(self) -> set[str]:
        return {"x-shop-trace"}


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_propagator_of_ones_own_is_used_as_it_is(ratio: float) -> None:
    before = propagate.get_global_textmap()
    with recorded_spans(sampler=ParentBased(TraceIdRatioBased(ratio))):
        sends = spans_now()
        first, _ = sends.begin("orders", None, b"1", None)
        propagate.set_global_textmap(Shop())
        try:
            second, _ = sends.begin("orders", None, b"1", None)
        finally:
            propagate.set_global_textmap(before)
        third, _ = sends.begin("orders", None, b"1", None)

    assert [name for name, _ in first or ()] == [name for name, _ in third or ()] == ["traceparent"]
    assert list(second or ()) == [("x-shop-trace", b"7")]


@pytest.mark.parametrize("flags", [0, 1])
def test_baggage_and_trace_state_go_along(flags: int) -> None:
    state = trace.TraceState([("shop", "7")])
    span = trace.NonRecordingSpan(trace.SpanContext(5, 6, False, trace.TraceFlags(flags), state))
    with recorded_spans(sampler=ParentBased(TraceIdRatioBased(0.0))):
        sends = spans_now()
        with current(baggage.set_baggage("user", "ann")):
            alone, _ = sends.begin("orders", None, b"1", None)
        with current(trace.set_span_in_context(span, context.Context())):
            inside, _ = sends.begin("orders", None, b"1", None)
        with current(trace.set_span_in_context(span, baggage.set_baggage("user", "ann"))):
            both, _ = sends.begin("orders", None, b"1", None)

    assert [name for name, _ in alone or ()] == ["traceparent", "baggage"]
    assert context_in(inside).trace_id == 5
    assert dict(inside or ())["tracestate"] == b"shop=7"
    assert set(dict(both or ())) == {"traceparent", "tracestate", "baggage"}


def test_the_sdk_counts_dropped_roots_where_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    with recorded_spans(sampler=TraceIdRatioBased(0.0)):
        spans = active_spans()
        assert spans is not None
        assert spans._roots is None
