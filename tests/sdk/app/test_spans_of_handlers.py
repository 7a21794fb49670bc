"""Traces of services through real clients, compared as trees: (threads, asyncio) x (per record, batch) x outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from span_trees import Recorder, recorded_spans

from ottla import (
    App,
    AsyncConsumer,
    AsyncProducer,
    CommitPolicy,
    Consumer,
    Context,
    Dead,
    Json,
    Producer,
    Record,
    Retry,
    RetryPolicy,
    RetryTopics,
    Skip,
    context_of,
)

OFTEN = CommitPolicy(every_s=0.05)
TWICE = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)
SOON = RetryTopics(delays_s=(0.1,))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recorded_spans() as made:
        yield made


class Service:
    """An app with one handler, of either kind, in either shell, and what is sent to it inside a span."""

    def __init__(self, kafka: Any, group: str, topic: str, dead: str, recorder: Recorder, **options: Any) -> None:
        self.kafka, self.group, self.topic, self.recorder = kafka, group, topic, recorder
        self.names = {f"{topic}.{group}.retry.1": "orders.retry", topic: "orders", dead: "dead"}
        self.app = App(
            group,
            bootstrap_servers=kafka.bootstrap_servers,
            commit=OFTEN,
            dead_letter_topic=dead,
            retry=TWICE,
            **options,
        )

    def handle(self, decide: Callable[[int, int], Any], *, batch: bool, **options: Any) -> None:
        """`decide(value, attempt)` returns or raises what the handler does with one record."""

        def one(record: Record[int], context: Context) -> Any:
            return decide(record.value, context.attempt)

        def many(records: list[Record[int]], context: Context) -> Any:
            return [decide(record.value, context.attempt) for record in records]

        options = {"max_batch": 10, "linger_ms": 300, **options} if batch else options
        self.app.handler(self.topic, value=Json(), name="handle", batch=batch, **options)(many if batch else one)

    def send(self, *values: int) -> None:
        with (
            Producer(self.kafka.bootstrap_servers, value=Json()) as producer,
            self.recorder.tracer.start_as_current_span("checkout"),
        ):
            for value in values:
                producer.send(self.topic, value, key=b"k%d" % value)

    @property
    def tree(self) -> list[str]:
        return self.recorder.tree(self.names)


@pytest.fixture
def service(kafka: Any, kafka_group: str, make_topic: Any, recorder: Recorder) -> Service:
    return Service(kafka, kafka_group, make_topic("orders"), make_topic("dead"), recorder)


def ack(value: int, attempt: int) -> Any:
    return None


def fail_once(value: int, attempt: int) -> Any:
    if attempt == 1:
        raise RuntimeError("not yet")


def ask_once(value: int, attempt: int) -> Any:
    return Retry(after_s=0.01) if attempt == 1 else None


def condemn(value: int, attempt: int) -> Any:
    return Dead("never")


def fail(value: int, attempt: int) -> Any:
    raise RuntimeError("never")


def skip(value: int, attempt: int) -> Any:
    return Skip("old")


ONE = {
    "ack": (ack, {}, ["checkout", "  send orders", "    process orders"]),
    "raises once": (
        fail_once,
        {},
        [
            "checkout",
            "  send orders",
            "    process orders raised !RuntimeError [record_retried]",
            "    process orders #2 links=1",
        ],
    ),
    "asks once": (
        ask_once,
        {},
        [
            "checkout",
            "  send orders",
            "    process orders retry !Retry [record_retried]",
            "    process orders #2 links=1",
        ],
    ),
    "retry topic": (
        fail_once,
        {"retry_topics": SOON},
        [
            "checkout",
            "  send orders",
            "    process orders raised !RuntimeError [record_sent_to_retry_topic]",
            "      send orders.retry",
            "    process orders.retry #2",
        ],
    ),
    "dead letter": (
        condemn,
        {},
        ["checkout", "  send orders", "    process orders dead !Dead [record_dead_lettered]", "      send dead"],
    ),
    "fails for good": (
        fail,
        {},
        [
            "checkout",
            "  send orders",
            "    process orders raised !RuntimeError [record_retried]",
            "    process orders #2 raised !RuntimeError links=1 [record_dead_lettered]",
            "      send dead",
        ],
    ),
    "skip": (skip, {}, ["checkout", "  send orders", "    process orders skip"]),
}


@pytest.mark.representative("asyncio-skip-async", "threads-asks once-plain")
@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("outcome", ONE)
def test_the_tree_of_one_record(
    shell: Any, service: Service, committed: Any, wait: Any, outcome: str, kind: str
) -> None:
    decide, options, wanted = ONE[outcome]
    if kind == "async":

        async def later(record: Record[int], context: Context) -> Any:
            await asyncio.sleep(0)
            return decide(record.value, context.attempt)

        service.app.handler(service.topic, value=Json(), name="handle", **options)(later)
    else:
        service.handle(decide, batch=False, **options)
    service.send(7)
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 1, timeout_s=30)
    if "retry_topics" in options:
        wait(lambda: committed(service.group, f"{service.topic}.{service.group}.retry.1") == 1, timeout_s=30)
    shell.stop(service.app)

    assert service.tree == wanted
    assert len({span.context.trace_id for span in service.recorder.spans}) == 1


MANY = {
    "ack": (ack, {}, ["process orders x2 links=2"]),
    "raises once": (
        fail_once,
        {},
        [
            "process orders x2 raised !RuntimeError links=2 [record_retried] [record_retried]",
            "process orders #2 x2 links=3",
        ],
    ),
    "retry topic": (
        ask_once,
        {"retry_topics": SOON},
        [
            "process orders x2 retry !Retry links=2 [record_sent_to_retry_topic] [record_sent_to_retry_topic]",
            "  send orders.retry",
            "  send orders.retry",
            "process orders.retry #2 x2 links=2",
        ],
    ),
    "dead letter": (
        condemn,
        {},
        [
            "process orders x2 dead !Dead links=2 [record_dead_lettered] [record_dead_lettered]",
            "  send dead",
            "  send dead",
        ],
    ),
    "skip": (skip, {}, ["process orders x2 skip links=2"]),
}


@pytest.mark.parametrize("outcome", MANY)
@pytest.mark.representative("asyncio-ack", "threads-retry topic")
def test_the_trees_of_a_batch(shell: Any, service: Service, committed: Any, wait: Any, outcome: str) -> None:
    decide, options, wanted = MANY[outcome]
    service.handle(decide, batch=True, max_batch=2, linger_ms=20_000, **options)  # both, however slowly they come
    service.send(1, 2)
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 2, timeout_s=30)
    if "retry_topics" in options:
        wait(lambda: committed(service.group, f"{service.topic}.{service.group}.retry.1") == 2, timeout_s=30)
    shell.stop(service.app)

    assert service.tree == ["checkout", "  send orders", "  send orders", *wanted]
    name = f"send {service.topic}"
    producers = {span.context.span_id for span in service.recorder.named(name) if span.name == name}
    (first, *_) = service.recorder.named("process")
    assert {link.context.span_id for link in first.links} == producers


COLUMNS = {
    "ack": (ack, ["process orders x2 links=2"]),
    "raises once": (
        fail_once,
        ["process orders x2 raised !RuntimeError links=2 [record_retried]", "process orders #2 x2 links=3"],
    ),
    "retry": (
        ask_once,
        ["process orders x2 retry !Retry links=2 [record_retried]", "process orders #2 x2 links=3"],
    ),
    "skip": (skip, ["process orders x2 skip links=2"]),
}


@pytest.mark.parametrize("shell", ["columns"], indirect=True)
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("outcome", COLUMNS)
def test_the_trees_of_a_batch_of_columns(
    shell: Any, service: Service, committed: Any, wait: Any, outcome: str, is_async: bool
) -> None:
    decide, wanted = COLUMNS[outcome]
    options: dict[str, Any] = {"value": Json(int), "columns": True, "max_batch": 2, "linger_ms": 20_000}
    if is_async:

        @service.app.handler(service.topic, name="handle", **options)
        async def take_async(batch: Any, context: Context) -> Any:
            await asyncio.sleep(0)
            return decide(batch.num_rows, context.attempt)

    else:

        @service.app.handler(service.topic, name="handle", **options)
        def take(batch: Any, context: Context) -> Any:
            return decide(batch.num_rows, context.attempt)

    service.send(1, 2)
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 2, timeout_s=30)
    shell.stop(service.app)

    assert service.tree == ["checkout", "  send orders", "  send orders", *wanted]


@pytest.mark.parametrize("batch", [False, True], ids=["per record", "batch"])
def test_a_handler_that_ends_the_service_has_its_span(shell: Any, service: Service, batch: bool) -> None:
    def crash(value: int, attempt: int) -> Any:
        raise SystemExit(3)

    service.handle(crash, batch=batch, linger_ms=1) if batch else service.handle(crash, batch=False)
    service.send(1)
    shell.start(service.app)
    shell.error_of(service.app)

    (span,) = service.recorder.named("process")
    assert (span.status.description, (span.attributes or {})["ottla.outcome"]) == ("SystemExit", "raised")


def test_what_a_handler_sends_and_returns_belongs_to_its_span(
    shell: Any, service: Service, make_topic: Any, committed: Any, wait: Any, kafka: Any
) -> None:
    invoices = make_topic("invoices")
    service.names[invoices] = "invoices"
    if shell.name == "threads":
        producer = service.app.producer(value=Json())

        @service.app.handler(service.topic, value=Json(), name="handle")
        def forward(value: int) -> Any:
            return producer.send(invoices, value)

    else:
        on_loop = service.app.async_producer(value=Json())

        @service.app.handler(service.topic, value=Json(), name="handle")
        async def forward_on_loop(value: int) -> Any:
            return on_loop.send(invoices, value)

    service.send(7)
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 1, timeout_s=30)
    shell.stop(service.app)

    assert service.tree == ["checkout", "  send orders", "    process orders", "      send invoices"]
    (sent,) = service.recorder.named(f"send {invoices}")
    (record,) = kafka.consume_all(invoices)
    assert record.header_text("traceparent") == (
        f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-{sent.context.trace_flags:02x}"
    )


def test_the_current_span_and_baggage_are_those_of_the_record(
    shell: Any, service: Service, committed: Any, wait: Any
) -> None:
    seen: list[tuple[int, int, object]] = []

    @service.app.handler(service.topic, value=Json(), name="handle", concurrency=3, ordering="unordered")
    def handle(value: int) -> None:
        own = trace.get_current_span()
        seen.append((value, own.get_span_context().span_id, baggage.get_baggage("shop")))
        context.attach(baggage.set_baggage("shop", "mine"))  # left behind: the next record must not see it

    with Producer(service.kafka.bootstrap_servers, value=Json()) as producer:
        for value in range(20):
            token = context.attach(baggage.set_baggage("shop", f"s{value}"))
            with service.recorder.tracer.start_as_current_span("checkout"):
                producer.send(service.topic, value)
            context.detach(token)
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 20, timeout_s=30)
    shell.stop(service.app)

    spans = {span.context.span_id: span for span in service.recorder.named("process")}
    assert len(spans) == 20
    for value, span_id, shop in seen:
        assert (spans[span_id].attributes or {})["kafka.offset"] == value
        assert shop == f"s{value}"


@pytest.mark.representative("threads-per record")
@pytest.mark.parametrize("batch", [False, True], ids=["per record", "batch"])
def test_nothing_is_recorded_of_a_trace_that_is_not_sampled_but_it_travels_on(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, batch: bool
) -> None:
    invoices = make_topic("invoices")
    with recorded_spans(sampler=ParentBased(TraceIdRatioBased(0.0))) as recorder:
        service = Service(kafka, kafka_group, make_topic("orders"), make_topic("dead"), recorder)
        producer = service.app.producer(value=Json())

        def forward(value: int, attempt: int) -> Any:
            producer.send(invoices, value)

        service.handle(forward, batch=batch)
        service.send(1)
        shell.start(service.app)
        wait(lambda: committed(service.group, service.topic) == 1, timeout_s=30)
        shell.stop(service.app)
    (order,), (invoice,) = kafka.consume_all(service.topic), kafka.consume_all(invoices)
    (_, first, _, flags), (_, second, _, flags_on) = (
        (record.header_text("traceparent") or "---").split("-") for record in (order, invoice)
    )

    assert recorder.spans == []
    assert [int(each, 16) & 1 for each in (flags, flags_on)] == [0, 0]
    assert batch or first == second, "the invoice belongs to the order's trace"


def test_a_record_without_a_trace_begins_one_that_its_retries_and_letter_belong_to(
    shell: Any, service: Service, committed: Any, wait: Any, kafka: Any
) -> None:
    from confluent_kafka.cimpl import Producer as Raw

    service.handle(fail, batch=False)
    raw = Raw({"bootstrap.servers": kafka.bootstrap_servers})
    raw.produce(service.topic, b"1", None, headers=[("traceparent", b"\xff nonsense")])
    assert raw.flush(20) == 0
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 1, timeout_s=30)
    shell.stop(service.app)

    assert service.tree == [
        "process orders raised !RuntimeError [record_retried]",
        "  process orders #2 raised !RuntimeError links=1 [record_dead_lettered]",
        "    send dead",
    ]


def test_attributes_hold_no_keys_values_or_headers(shell: Any, service: Service, committed: Any, wait: Any) -> None:
    @service.app.handler(service.topic, value=Json(), name="handle")
    def handle(value: str) -> None:
        raise RuntimeError("never")

    with Producer(service.kafka.bootstrap_servers, key=str, value=str) as producer:
        producer.send(service.topic, '"secret-value"', key="secret-key", headers=[("secret-header", b"secret")])
    shell.start(service.app)
    wait(lambda: committed(service.group, service.topic) == 1, timeout_s=30)
    shell.stop(service.app)

    assert len(service.recorder.spans) == 4
    for span in service.recorder.spans:
        shown = (
            span.name,
            dict(span.attributes or {}),
            [(event.name, dict(event.attributes or {})) for event in span.events],
        )
        assert "secret-" not in str(shown)


async def test_async_sends_have_their_spans_too(kafka: Any, kafka_topic: str, recorder: Recorder) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with recorder.tracer.start_as_current_span("checkout"):
            await producer.send(kafka_topic, b"1")
            await (await producer.send_many(kafka_topic, [(b"2",), (b"3",)]))

    assert recorder.tree({kafka_topic: "orders"}) == ["checkout", "  send orders", "  send orders x2"]


class Broken(SpanProcessor):
    """What somebody installed, and raises wherever it is called."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise ValueError("broken at the start")

    def on_end(self, span: Any) -> None:
        raise ValueError("broken at the end")


class Failing(SpanExporter):
    """One that raises, as exporters do when their collector is away."""

    def export(self, spans: Any) -> SpanExportResult:
        raise ConnectionError("no collector")


@pytest.mark.parametrize("processor", [Broken, lambda: SimpleSpanProcessor(Failing())], ids=["processor", "exporter"])
@pytest.mark.parametrize("batch", [False, True], ids=["per record", "batch"])
def test_a_broken_span_processor_or_exporter_stops_nothing(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, batch: bool, processor: Any
) -> None:
    handled: list[int] = []
    with recorded_spans(processor=processor()) as recorder:
        service = Service(kafka, kafka_group, make_topic("orders"), make_topic("dead"), recorder)
        service.handle(lambda value, attempt: handled.append(value), batch=batch)
        with Producer(kafka.bootstrap_servers, value=Json()) as producer:
            for value in range(10):
                producer.send(service.topic, value)
        shell.start(service.app)
        wait(lambda: committed(service.group, service.topic) == 10, timeout_s=30)
        shell.stop(service.app)

    assert handled == list(range(10))


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_a_pulled_consumer_links_what_it_takes_and_gives_the_trace_of_a_record(
    kafka: Any, kafka_topic: str, kafka_group: str, recorder: Recorder, kind: str
) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"1")
    options: dict[str, Any] = {"group": kafka_group, "bootstrap_servers": kafka.bootstrap_servers}
    record: Any
    if kind == "threads":
        with Consumer(kafka_topic, **options) as consumer:
            (record,) = await asyncio.to_thread(consumer.poll, 30)
    else:
        async with AsyncConsumer(kafka_topic, **options) as async_consumer:
            (record,) = await async_consumer.poll(30)
    with recorder.tracer.start_as_current_span("charge", context=context_of(record)):
        pass

    assert recorder.tree({kafka_topic: "orders"}) == ["send orders", "  charge", "receive orders x1 links=1"]
    (received,) = recorder.named("receive")
    assert received.kind is SpanKind.CLIENT
