"""A trace goes on through the dead letter topic and back, and into and out of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from span_trees import Recorder, recorded_spans

from ottla import (
    App,
    AsyncConsumer,
    AsyncProducer,
    CommitPolicy,
    Consumer,
    Dead,
    DeliveryError,
    InTransactions,
    Json,
    Producer,
    RetriableError,
    context_of,
)
from ottla.browse.redrive import redrive

OFTEN = CommitPolicy(every_s=0.05)
ENOUGH = 60


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recorded_spans() as made:
        yield made


def test_a_redriven_record_belongs_to_the_trace_that_it_came_from(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, recorder: Recorder
) -> None:
    topic, dead = make_topic("orders"), make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead)
    is_mended = False

    @app.handler(topic, value=Json(), name="handle")
    def handle(value: int) -> Any:
        return None if is_mended else Dead("not yet")

    with Producer(kafka.bootstrap_servers, value=Json()) as producer, recorder.tracer.start_as_current_span("checkout"):
        producer.send(topic, 7)
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 1, timeout_s=ENOUGH)
    is_mended = True
    report = redrive(kafka.bootstrap_servers, dead)
    wait(lambda: committed(app.group, topic) == 2, timeout_s=ENOUGH)
    shell.stop(app)

    assert report.redriven == 1
    assert recorder.tree({topic: "orders", dead: "dead"}) == [
        "checkout",
        "  send orders",
        "    process orders dead !Dead [record_dead_lettered]",
        "      send dead",
        "    send orders",
        "    process orders",
    ]
    assert len({span.context.trace_id for span in recorder.spans}) == 1


def settle_in_threads(kafka: Any, group: str, topics: tuple[str, str], recorder: Recorder) -> None:
    orders, settled = topics
    with (
        Producer(kafka.bootstrap_servers, settings={"transactional.id": group}) as producer,
        Consumer(orders, group=group, bootstrap_servers=kafka.bootstrap_servers, commit=InTransactions()) as consumer,
    ):
        aborted = done = 0
        while not done:
            try:
                with producer.transaction() as transaction:
                    records = consumer.poll(timeout_s=0.2)
                    transaction.send_offsets(records, consumer)
                    for record in records:
                        with recorder.tracer.start_as_current_span("settle", context=context_of(record)):
                            producer.send(settled, record.value).result(ENOUGH)
                    if records and not aborted:
                        aborted += 1
                        raise RetriableError("not this time")
            except (RetriableError, DeliveryError):
                continue
            done += len(records)


async def settle_on_asyncio(kafka: Any, group: str, topics: tuple[str, str], recorder: Recorder) -> None:
    orders, settled = topics
    options: dict[str, Any] = {"group": group, "bootstrap_servers": kafka.bootstrap_servers}
    async with (
        AsyncProducer(kafka.bootstrap_servers, settings={"transactional.id": group}) as producer,
        AsyncConsumer(orders, **options, commit=InTransactions()) as consumer,
    ):
        aborted = done = 0
        while not done:
            try:
                async with producer.transaction() as transaction:
                    records = await consumer.poll(timeout_s=0.2)
                    await transaction.send_offsets(records, consumer)
                    for record in records:
                        with recorder.tracer.start_as_current_span("settle", context=context_of(record)):
                            await producer.send(settled, record.value)
                    if records and not aborted:
                        aborted += 1
                        raise RetriableError("not this time")
            except (RetriableError, DeliveryError):
                continue
            done += len(records)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_trace_goes_through_a_transaction_and_one_that_is_aborted(
    kafka: Any, kafka_group: str, make_topic: Any, recorder: Recorder, kind: str
) -> None:
    topics = orders, settled = make_topic("orders"), make_topic("settled")
    with Producer(kafka.bootstrap_servers) as producer, recorder.tracer.start_as_current_span("checkout"):
        producer.send(orders, b"7")
    if kind == "threads":
        settle_in_threads(kafka, kafka_group, topics, recorder)
    else:
        asyncio.run(settle_on_asyncio(kafka, kafka_group, topics, recorder))

    # Twice: the first time was aborted. A slow cluster may abort it once more.
    tree = recorder.tree({orders: "orders", settled: "settled"})
    times, received = tree.count("    settle"), tree.count("receive orders x1 links=1")
    wanted = ["checkout", "  send orders", *["    settle", "      send settled"] * times]
    assert tree == [*wanted, *["receive orders x1 links=1"] * received]
    assert received >= times >= 2
    within = [span for span in recorder.spans if not span.name.startswith("receive")]
    assert len({span.context.trace_id for span in within}) == 1
    last = recorder.named(f"send {settled}")[-1].context
    (record,) = kafka.consume_all(settled)  # only what was committed
    assert (record.header_text("traceparent") or "").split("-")[1:3] == [
        f"{last.trace_id:032x}",
        f"{last.span_id:016x}",
    ]
