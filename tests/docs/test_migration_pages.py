"""The code of the migration guides runs: what stands there before and after does the same on the embedded broker."""

from __future__ import annotations

import ast
import re
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import App, Json, Producer
from ottla.producer.partitioners import PARTITIONERS
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, RunningApp, ServedApp, consumer_for, wait_until, wait_until_async

FOLDER = Path(__file__).parents[2] / "docs" / "migration"
ORDERS = [b'{"id": 1, "total": 50.0}', b'{"id": 2, "total": 150.0}', b'{"id": 3, "total": 250.0}']


def block(page: str, title: str) -> str:
    (found,) = re.findall(rf'^```python title="{title}"\n(.*?)^```$', text(page), re.DOTALL | re.MULTILINE)
    return str(found)


def text(page: str) -> str:
    return (FOLDER / page).read_text(encoding="utf-8")


@pytest.fixture
def run_block(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs a block with topics and a group of its own; returns its names."""

    def run(page: str, title: str, names: dict[str, Any], **renamed: str) -> dict[str, Any]:
        program = block(page, title).replace("localhost:9092", kafka.bootstrap_servers)
        for plain, own in renamed.items():
            program = program.replace(f'"{plain.replace("_", ".")}"', f'"{own}"')
        module = types.ModuleType("migrated")
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(program, f"{page}: {title}", "exec", dont_inherit=True), vars(module))
        return vars(module)

    return run


@pytest.mark.parametrize("page", ["confluent-kafka.md", "aiokafka.md"])
def test_what_was_billed_before_is_billed_after(page: str, run_block, kafka: Kafka, make_topic, run_app) -> None:
    topic, dead, group = make_topic(), make_topic(), kafka.fresh_name("billing")
    kafka.produce(topic, ORDERS[:2])
    billed: list[int] = []
    names: dict[str, Any] = {"bill": billed.append, "running": True}

    def stop_when_done() -> None:  # as a signal handler would
        wait_until(lambda: len(billed) == 2, 60, what="two orders before")
        sys.modules["migrated"].running = False  # type: ignore[attr-defined]

    stopper = threading.Thread(target=stop_when_done)
    stopper.start()
    run_block(page, "before", names, orders=topic, billing=group)
    stopper.join()
    assert sorted(billed) == [1, 2]

    # The same group goes on where the old code ended, also behind a record that the old code would not survive.
    kafka.produce(topic, [b"no json", ORDERS[2]])
    renamed = {"orders": topic, "billing": group, "orders_dead-letters": dead}
    app = run_block(page, "after", {"bill": billed.append}, **renamed)["app"]
    run_app(app)
    wait_until(lambda: len(billed) == 3, 60, what="the third order")
    assert [record.value for record in kafka.consume_all(dead, at_least=1)] == [b"no json"]
    assert sorted(billed) == [1, 2, 3], "what was committed before is not billed again"


@pytest.mark.parametrize("page", ["confluent-kafka.md", "aiokafka.md"])
def test_both_producers_write_the_same_to_the_same_partition(page: str, run_block, kafka: Kafka, make_topic) -> None:
    topic = make_topic(partitions=16)
    run_block(page, "before-producer", {}, orders=topic)
    run_block(page, "after-producer", {}, orders=topic)
    before, after = kafka.consume_all(topic, at_least=2)
    assert (before.key, before.partition) == (after.key, after.partition)
    assert Json().deserialize(before.value, None) == Json().deserialize(after.value, None) == {"id": 1}


@pytest.mark.parametrize("page", ["spring-kafka.md", "dotnet.md"])
def test_the_service_for_those_who_come_from_elsewhere_bills(page: str, run_block) -> None:
    billed: list[int] = []
    app = run_block(page, "after", {"bill": billed.append})["app"]
    assert consumer_for(app).deliver(ORDERS[0]).outcome == "done"
    assert consumer_for(app).deliver(b"no json").outcome == "dead"
    assert billed == [1]


def test_the_retries_of_spring_are_those_that_it_had(run_block) -> None:
    def refuse(_: int) -> None:
        raise ConnectionError("no answer")

    delivery = consumer_for(run_block("spring-kafka.md", "after", {"bill": refuse})["app"]).deliver(ORDERS[0])
    assert (delivery.outcome, delivery.attempts, delivery.waited_s) == ("dead", 5, 4)


async def test_the_service_from_faststream_writes_invoices(run_block, kafka: Kafka, make_topic) -> None:
    pytest.importorskip("pydantic")
    topic, invoices, dead = make_topic(), make_topic(), make_topic()
    kafka.produce(topic, ORDERS)
    renamed = {"orders": topic, "invoices": invoices, "orders_dead-letters": dead}
    app = run_block("faststream.md", "after", {}, **renamed)["app"]
    async with ServedApp(app, kafka.bootstrap_servers):
        await wait_until_async(lambda: len(kafka.consume_all(invoices)) == 3, 60, what="three invoices")


def test_the_service_from_quix_streams_passes_large_orders_on(run_block, kafka: Kafka, make_topic) -> None:
    topic, large, dead = make_topic(), make_topic(), make_topic()
    kafka.produce(topic, ORDERS, keys=["a", "b", "c"])
    renamed = {"orders": topic, "orders_large": large, "orders_dead-letters": dead}
    app = run_block("quix-streams.md", "after", {}, **renamed)["app"]
    with RunningApp(app, kafka.bootstrap_servers):
        wait_until(lambda: len(kafka.consume_all(large)) == 2, 60, what="two large orders")
    assert [record.key for record in kafka.consume_all(large)] == [b"b", b"c"]


def test_the_service_from_rabbitmq_bills_what_is_urgent_delayed_and_not_cancelled(
    run_block, kafka: Kafka, make_topic
) -> None:
    topic, dead = make_topic(), make_topic()
    kafka.create_topic(f"{topic}.urgent")
    with Scheduler(kafka.bootstrap_servers):
        pass  # it makes the schedule
    billed: list[int] = []
    renamed = {"orders": topic, "orders_dead-letters": dead, "billing": kafka.fresh_name("billing")}
    app = run_block("rabbitmq.md", "after", {"bill": billed.append}, **renamed)["app"]
    with RunningApp(app, kafka.bootstrap_servers):
        wait_until(lambda: len(billed) == 2, 60, what="the urgent and the delayed order")
    assert sorted(billed) == [1, 2]


def test_old_and_new_members_share_a_group_by_a_common_assignor(run_block, kafka: Kafka, make_topic) -> None:
    from confluent_kafka import Consumer

    topic, group = make_topic(partitions=4), kafka.fresh_name("billing")
    names = run_block("index.md", "rolling", {"App": App}, billing=group)
    seen: list[int] = []
    names["app"].handler(topic, value=Json())(lambda value: seen.append(value["id"]))
    old = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"})
    old.subscribe([topic])
    try:
        with RunningApp(names["app"], kafka.bootstrap_servers):

            def both_have_two() -> bool:
                old.poll(0.1)
                return len(old.assignment()) == len(names["app"].health().partitions) == 2

            wait_until(both_have_two, 60, what="two partitions each")
    finally:
        old.close()


def test_the_partitioner_that_keeps_librdkafkas_keys_exists(run_block) -> None:
    names = run_block("index.md", "partitioner", {"Producer": Producer})
    names["producer"].close()
    assert "consistent_random" in PARTITIONERS


async def test_the_service_from_faust_bills_what_its_models_have_written(run_block, kafka: Kafka, make_topic) -> None:
    topic, dead, billed = make_topic(), make_topic(), list[int]()
    of_faust = b'{"id": 4, "total": 1.5, "__faust": {"ns": "service.Order"}}'
    kafka.produce(topic, [*ORDERS, of_faust])
    renamed = {"orders": topic, "orders_dead-letters": dead, "billing": kafka.fresh_name("billing")}
    app = run_block("faust.md", "after", {"bill": billed.append}, **renamed)["app"]
    async with ServedApp(app, kafka.bootstrap_servers):
        await wait_until_async(lambda: sorted(billed) == [1, 2, 3, 4], 60, what="four orders")


@pytest.mark.parametrize("page", ["faststream.md", "quix-streams.md", "rabbitmq.md", "faust.md"])
def test_the_code_of_the_peers_is_python(page: str) -> None:
    assert ast.parse(block(page, "peer")).body


def test_every_page_is_listed() -> None:
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", text("index.md")))
    assert listed == {path.name for path in FOLDER.glob("*.md")} - {"index.md"}
