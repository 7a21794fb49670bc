"""Spans of sends and handlers that are recorded are the SDK's own, in the context of their record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import Context as Copied
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import IdGenerator, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from span_trees import Recorder, recorded_spans

from ottla.app.delivery.handler_spans import HandlerSpans
from ottla.producer.tracing import SendSpans, send_spans
from ottla.records import Header, Record
from ottla.telemetry.logs.trace_ids import trace_ids
from ottla.telemetry.traces.lazy_contexts import LazyContext, make_current
from ottla.telemetry.traces.open_attempts import open_attempts
from ottla.telemetry.traces.tracer_spans import TracerSpans

TRACE = 0x0AF7651916CD43DD8448EB211C80319C


class Delivery:
    """What the spans ask of a handler's context."""

    attempt = 1


def record(offset: int, headers: list[Header] | None, value: bytes | None = b"1") -> Record[Any]:
    return Record("orders", 3, offset, 0, b"k", value, headers, b"k", value)  # type: ignore[arg-type]


def parent(number: int, flags: int) -> Header:
    return "traceparent", f"00-{TRACE + number:032x}-{number + 1:016x}-{flags:02x}".encode()


def handler_spans() -> HandlerSpans:
    return HandlerSpans(group="billing", handler="charge", is_batch=False)


def sends() -> SendSpans:
    found = send_spans("billing")
    assert found is not None
    return found


def deliver(records: Sequence[Record[Any]], handler: Callable[[Record[Any]], Any]) -> None:
    """As a worker does it."""
    for call, some in handler_spans().stretches(lambda record, _: handler(record), records):
        for each in some:
            copy_context().run(call, each, Delivery())  # type: ignore[arg-type]


def send_root(recorder: Recorder) -> None:
    _, span = sends().begin("orders", b"k", None, [("shop", b"7")])
    assert span is not None
    span.delivered(3, 7)


def send_inside(recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("checkout"):
        _, span = sends().begin("orders", b"k", b"1", None)
    assert span is not None
    span.delivered(3, None)


def send_on(recorder: Recorder) -> None:
    _, span = sends().begin("orders.retry", b"k", b"1", [parent(1, 3)])
    assert span is not None
    span.not_delivered(RuntimeError("gone"))


def send_bulk(recorder: Recorder) -> None:
    _, span = sends().begin_bulk("orders")
    assert span is not None
    span.set({"messaging.batch.message_count": 7})
    span.end()


def process_child(recorder: Recorder) -> None:
    deliver([record(5, [("shop", b"7"), parent(1, 1)]), record(6, [parent(1, 3)], None)], lambda _: None)


def process_root(recorder: Recorder) -> None:
    deliver([record(5, None), record(6, [("shop", b"7")])], lambda _: None)


def deliver_batch(records: Sequence[Record[Any]], handler: Callable[[Sequence[Record[Any]]], Any]) -> None:
    """As a worker does it."""
    spans = HandlerSpans(group="billing", handler="charge", is_batch=True)
    copy_context().run(spans.around(lambda batch, _: handler(batch)), records, Delivery())  # type: ignore[arg-type]


def process_batch(recorder: Recorder) -> None:
    deliver_batch([record(5, None), record(6, [parent(1, 0)])], lambda _: None)


def process_linked_batch(recorder: Recorder) -> None:
    deliver_batch([record(5, [parent(1, 1)]), record(6, [parent(2, 0)])], lambda _: None)


WAYS = (send_root, send_inside, send_on, send_bulk, process_child, process_root, process_batch, process_linked_batch)
SAMPLERS = (ALWAYS_ON, ParentBased(ALWAYS_ON), ParentBased(TraceIdRatioBased(1.0)))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("way", WAYS)
def test_each_recorded_span_is_started_by_the_sdk_and_ends_behind_its_start(
    way: Callable[[Recorder], None], sampler: Sampler
) -> None:
    with recorded_spans(sampler=sampler) as recorder:
        recorder.provider.add_span_processor(starts := Starts())
        way(recorder)

    assert recorder.spans
    assert sorted(starts.names) == sorted(span.name for span in recorder.spans)
    for span in recorder.spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def test_a_span_that_is_asked_for_is_the_one_that_is_exported() -> None:
    seen: list[Span] = []

    def handler(_: Record[Any]) -> None:
        span = trace.get_current_span()
        assert isinstance(span, Span)
        span.set_attribute("shop", 7)
        span.add_event("charged")
        assert trace.get_current_span() is span
        seen.append(span)

    with recorded_spans() as recorder:
        deliver([record(5, [parent(1, 1)])], handler)

    (span,) = recorder.spans
    assert span.context == seen[0].get_span_context()
    assert (span.context.trace_id, span.parent and span.parent.span_id) == (TRACE + 1, 2)
    assert (span.attributes or {})["shop"] == 7
    assert (span.attributes or {})["kafka.offset"] == 5
    assert [event.name for event in span.events] == ["charged"]
    assert (span.start_time or 0) <= span.events[0].timestamp


def test_spans_of_a_handlers_own_are_children_of_its_records() -> None:
    with recorded_spans() as recorder:
        tracer = recorder.tracer

        def handler(_: Record[Any]) -> None:
            with tracer.start_as_current_span("charge"):
                pass

        deliver([record(5, [parent(1, 1)]), record(6, [parent(2, 0)])], handler)

    assert recorder.tree({}) == ["process orders", "  charge"]


def test_what_a_handler_sends_belongs_to_its_record() -> None:
    found: list[tuple[Sequence[Header] | None, bool]] = []

    def handler(_: Record[Any]) -> None:
        headers, span = sends().begin("invoices", None, b"1", None)
        found.append((headers, span is not None))
        if span is not None:
            span.delivered(0, 1)

    with recorded_spans(sampler=ParentBased(ALWAYS_ON)) as recorder:
        deliver([record(5, [parent(1, 1)]), record(6, [parent(2, 0)]), record(7, [parent(3, 2)])], handler)

    assert recorder.tree({}) == ["process orders", "  send invoices"]
    process, send = recorder.spans
    assert send.parent == process.context
    own = send.context
    assert found == [
        ([("traceparent", f"00-{own.trace_id:032x}-{own.span_id:016x}-01".encode())], True),
        ([parent(2, 0)], False),  # nothing is made for it: its own header goes on
        ([parent(3, 2)], False),
    ]


def test_a_send_in_a_trace_that_is_not_recorded_reads_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    read = LazyContext.read
    monkeypatch.setattr(LazyContext, "read", lambda context: (reads.append(context), read(context))[1])

    def handler(_: Record[Any]) -> None:
        _, span = sends().begin("invoices", None, b"1", None)
        assert span is None

    with recorded_spans(sampler=ParentBased(ALWAYS_ON)) as recorder:
        deliver([record(5, [parent(1, 0)]), record(6, [parent(2, 2)])], handler)

    assert (recorder.spans, reads) == ([], [])


def test_a_send_in_the_context_of_headers_that_say_nothing_begins_a_trace() -> None:
    told: list[bool] = []

    def handler(_: Record[Any]) -> None:
        headers, span = sends().begin("invoices", None, b"1", None)
        told.append(bool(headers) and span is not None)
        if span is not None:
            span.delivered(0, 1)

    nothing = ("traceparent", b"00-%032x-%016x-00" % (0, 0))
    for sampler in (ALWAYS_ON, ParentBased(TraceIdRatioBased(1.0))):
        with recorded_spans(sampler=sampler) as recorder:
            deliver([record(5, [nothing])], handler)
        assert recorder.tree({}) == ["send invoices"]
    assert told == [True, True]


@pytest.mark.parametrize("flags", [[0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1]])
def test_a_context_that_is_kept_stays_that_of_its_record(flags: list[int]) -> None:
    kept: list[Copied] = []
    with recorded_spans() as recorder:
        records = [record(number, [parent(number, each)]) for number, each in enumerate(flags)]
        deliver(records, lambda _: kept.append(copy_context()))
        found = [own.run(trace.get_current_span).get_span_context() for own in kept]

    assert [each.trace_id for each in found] == [TRACE, TRACE + 1, TRACE + 2]
    assert [each.trace_flags.sampled for each in found] == [bool(each) for each in flags]
    recorded = [each.span_id for each in found if each.trace_flags.sampled]
    assert recorded == [each.context.span_id for each in recorder.spans]


def test_a_span_that_is_looked_at_behind_its_end_records_nothing() -> None:
    kept: list[Copied] = []
    with recorded_spans() as recorder:
        deliver([record(5, [parent(1, 1)])], lambda _: kept.append(copy_context()))
        late = kept[0].run(trace.get_current_span)
        assert not late.is_recording()
        late.set_attribute("shop", 7)
        late.end()

    (span,) = recorder.spans
    assert late.get_span_context() == span.context
    assert "shop" not in (span.attributes or {})


def test_who_looks_and_who_ends_may_be_two_threads() -> None:
    seen: list[trace.SpanContext] = []
    with recorded_spans() as recorder:

        def handler(_: Record[Any]) -> None:
            own = copy_context()
            thread = threading.Thread(target=lambda: seen.append(own.run(trace.get_current_span).get_span_context()))
            threads.append(thread)
            thread.start()

        threads: list[threading.Thread] = []
        deliver([record(number, [parent(number, 1)]) for number in range(100)], handler)
        for thread in threads:
            thread.join(60)

    assert len(recorder.spans) == 100
    assert {each.span_id for each in seen} == {span.context.span_id for span in recorder.spans}


def test_a_task_keeps_the_trace_of_the_record_that_began_it() -> None:
    async def main() -> list[str]:
        begun: list[asyncio.Task[dict[str, str]]] = []

        async def later() -> dict[str, str]:
            await asyncio.sleep(0)
            return trace_ids()

        async def handler(record: Record[Any], _: Any) -> None:
            begun.append(asyncio.create_task(later()))

        call = handler_spans().around_async(handler)
        for number in range(4):
            await call(record(number, [parent(number, number % 2)]), Delivery())  # type: ignore[arg-type]
        return [(await task)["trace_id"] for task in begun]

    with recorded_spans():
        found = asyncio.run(main())

    assert found == [f"{TRACE + number:032x}" for number in range(4)]


def test_log_lines_of_a_handler_have_the_ids_of_its_record() -> None:
    found: list[dict[str, str]] = []
    with recorded_spans() as recorder:
        deliver([record(0, [parent(0, 0)]), record(1, [parent(1, 1)])], lambda _: found.append(trace_ids()))

    (span,) = recorder.spans
    assert found == [
        {"trace_id": f"{TRACE:032x}", "span_id": f"{1:016x}"},
        {"trace_id": f"{TRACE + 1:032x}", "span_id": f"{span.context.span_id:016x}"},
    ]


class Ended(Exception):
    pass


@pytest.mark.parametrize("flags", [0, 1])
def test_the_worker_is_in_no_records_trace_afterwards(flags: int) -> None:
    def fail(_: Record[Any]) -> None:
        raise Ended

    def worker() -> None:
        own = baggage.set_baggage("worker", "1", Context())
        make_current(own)
        records = [record(number, [parent(number, flags)]) for number in range(3)]
        deliver(records, lambda _: None)
        assert get_current() is own
        stretches = handler_spans().stretches(lambda record, _: fail(record), records)
        call, some = next(stretches)
        with pytest.raises(Ended):
            copy_context().run(call, next(iter(some)), Delivery())  # type: ignore[arg-type]
        stretches.close()
        assert get_current() is own

    with recorded_spans() as recorder:
        copy_context().run(worker)
        open_attempts("billing").end_all()

    assert [span.status.is_ok for span in recorder.spans] == [True, True, True, False][: 4 * flags]


class Asked(Sampler):
    """A sampler of somebody's own."""

    def __init__(self) -> None:
        self.traces: list[int] = []

    def should_sample(self, parent_context: Context | None, trace_id: int, *args: Any, **kwargs: Any) -> SamplingResult:
        self.traces.append(trace_id)
        return ALWAYS_ON.should_sample(parent_context, trace_id, *args, **kwargs)

    def get_description(self) -> str:
        return "Asked"


@pytest.mark.parametrize("is_root", [True, False])
def test_a_sampler_of_ones_own_is_asked_once_per_record(is_root: bool) -> None:
    sampler = Asked()
    with recorded_spans(sampler=ParentBased(sampler) if is_root else sampler) as recorder:
        deliver([record(0, None), record(1, None)], lambda _: trace.get_current_span().get_span_context())
        for _ in range(2):
            _, span = sends().begin("orders", None, b"1", None)
            assert span is not None
            span.delivered(0, 1)
        if not is_root:
            deliver([record(2, [parent(2, 1)]), record(3, [parent(3, 0)])], lambda _: None)

    assert sorted(sampler.traces) == sorted(span.context.trace_id for span in recorder.spans)
    assert len(sampler.traces) == (4 if is_root else 5)  # not of the record whose trace is not recorded


class Starts(SpanProcessor):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.names.append(span.name)


def test_the_sampler_of_a_ratio_is_asked_of_recorded_batches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    decide = TraceIdRatioBased.should_sample

    def counting(self: TraceIdRatioBased, parent_context: Any, trace_id: int, *rest: Any, **more: Any) -> Any:
        asked.append(trace_id)
        return decide(self, parent_context, trace_id, *rest, **more)

    monkeypatch.setattr(TraceIdRatioBased, "should_sample", counting)
    with recorded_spans(sampler=ParentBased(TraceIdRatioBased(0.3))) as recorder:
        for number in range(100):
            deliver_batch([record(number, None)], lambda _: None)

    assert {span.context.trace_id for span in recorder.spans} >= set(asked)
    assert 0 < len(recorder.spans) < 100


def test_a_processor_that_is_added_later_hears_of_starts() -> None:
    with recorded_spans() as recorder:
        deliver([record(0, [parent(0, 1)])], lambda _: None)
        recorder.provider.add_span_processor(starts := Starts())
        deliver([record(1, [parent(1, 1)])], lambda _: starts.names.append("in the handler"))
        send_root(recorder)

    assert starts.names == ["process orders", "in the handler", "send orders"]
    assert len(recorder.spans) == 3


class Broken(IdGenerator):
    """A service's own ids, which it has no more of."""

    def generate_trace_id(self) -> int:
        raise OSError("no ids are left")

    generate_span_id = generate_trace_id


@pytest.mark.parametrize("sampler", [ALWAYS_ON, ParentBased(ALWAYS_ON), TraceIdRatioBased(0.5), TraceIdRatioBased(0.0)])
def test_a_generator_of_ids_that_raises_costs_spans_and_nothing_else(sampler: Sampler) -> None:
    handled: list[int] = []

    def handler(given: Record[Any]) -> None:
        handled.append(given.offset)
        headers, span = sends().begin("invoices", None, b"1", [("shop", b"7")])
        assert (headers or ())[0] == ("shop", b"7")
        assert span is None

    with recorded_spans(sampler=sampler) as recorder:
        recorder.provider.id_generator = Broken()
        deliver([record(0, None), record(1, [parent(1, 1)])], handler)

    assert handled == [0, 1]
    assert recorder.spans == []


def test_a_limit_of_the_provider_holds() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(span_limits=SpanLimits(max_span_attribute_length=3))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        spans = TracerSpans(provider)
        _, span = spans.send("send orders", lambda: {"messaging.destination.name": "orders"}, ())
        assert span is not None
        span.end()
    finally:
        provider.shutdown()

    (found,) = exporter.get_finished_spans()
    assert dict(found.attributes or {}) == {"messaging.destination.name": "ord"}


@pytest.mark.parametrize("is_batch", [False, True])
def test_roots_of_records_are_decided_by_the_ratio(is_batch: bool) -> None:
    found: list[trace.SpanContext] = []

    def handle(_: object) -> None:
        found.append(trace.get_current_span().get_span_context())

    sampler = TraceIdRatioBased(0.3)
    with recorded_spans(sampler=ParentBased(sampler)) as recorder:
        if is_batch:
            for number in range(300):
                deliver_batch([record(number, None), record(number, [parent(number, 1)])], handle)
        else:
            deliver([record(number, None) for number in range(300)], handle)

    assert len({each.trace_id for each in found}) == len({each.span_id for each in found}) == 300
    assert not any(each.is_remote for each in found)
    for each in found:
        assert sampler.should_sample(None, each.trace_id, "").decision.is_sampled() is each.trace_flags.sampled
    recorded = {each.trace_id for each in found if each.trace_flags.sampled}
    assert {span.context.trace_id for span in recorder.spans} == recorded
    assert 0 < len(recorded) < 300
