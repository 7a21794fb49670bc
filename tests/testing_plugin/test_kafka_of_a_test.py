"""A Kafka for one test, one that is cleaned behind it, and what async tests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, Producer
from ottla.admin import Admin
from ottla.errors import ConfigError
from ottla.testing import Kafka, wait_until_async

app = App("billing", dead_letter_topic="orders-of-a-clean-kafka.dead-letters")


@app.handler("orders-of-a-clean-kafka", value=int)
def on_order(order: int) -> None: ...


def one_dead_letter(kafka: Kafka, run_app: Callable[..., Any]) -> None:
    kafka.create_topic("orders-of-a-clean-kafka")
    kafka.create_topic("orders-of-a-clean-kafka.dead-letters")
    kafka.produce("orders-of-a-clean-kafka", [1, b"not an order"])
    run_app(app)
    (dead,) = kafka.consume_all("orders-of-a-clean-kafka.dead-letters", at_least=1)
    assert dead.value == b"not an order"


@pytest.mark.parametrize("run", ["first", "second"])
def test_each_test_has_a_fresh_kafka(fresh_kafka: Kafka, run_app: Callable[..., Any], run: str) -> None:
    one_dead_letter(fresh_kafka, run_app)


@pytest.mark.parametrize("run", ["first", "second"])
def test_a_test_on_clean_kafka_finds_nothing_of_the_one_before(
    run_app: Callable[..., Any], clean_kafka: Kafka, run: str
) -> None:
    one_dead_letter(clean_kafka, run_app)


def test_the_other_fixtures_are_on_the_fresh_kafka(
    fresh_kafka: Kafka,
    kafka: Kafka,
    kafka_producer: Producer,
    make_topic: Callable[..., str],
    make_consumer: Callable[..., Any],
) -> None:
    topic = make_topic()
    kafka_producer.send(topic, b"here").result(10)
    assert [record.value for record in make_consumer(topic).take(1)] == [b"here"]
    with Admin(fresh_kafka.bootstrap_servers) as ours, Admin(kafka.bootstrap_servers) as shared:
        assert [each.name for each in ours.list_topics()] == [topic]
        assert topic not in {each.name for each in shared.list_topics()}


def test_what_came_in_a_block_is_gone_behind_it_and_the_rest_stays(kafka: Kafka, kafka_topic: str) -> None:
    inside = kafka.fresh_name("inside")
    with kafka.cleaned():
        kafka.create_topic(inside)
        kafka.produce(kafka_topic, [1])
    assert kafka.create_topic(inside) == inside
    assert len(kafka.consume_all(kafka_topic)) == 1
    kafka.delete_topics([inside])


def test_a_block_deletes_only_what_it_made_itself_of_a_kafka_that_others_may_use(kafka: Kafka) -> None:
    theirs, mine, before = (kafka.fresh_name(hint) for hint in ("theirs", "mine", "before"))
    shared = Kafka(kafka.bootstrap_servers, kind="external", settings=kafka.settings)
    shared.create_topic(before)
    with shared.cleaned():
        shared.create_topic(mine)
        kafka.create_topic(theirs)
    assert shared.create_topic(mine) == mine
    for name in (theirs, before):
        with pytest.raises(ConfigError, match="exists"):
            shared.create_topic(name)
    kafka.delete_topics([theirs, mine, before])


async def test_async_tests_wait_beside_the_app_that_their_loop_runs(
    kafka: Kafka, serve_app: Callable[..., Any], make_topic: Callable[..., str]
) -> None:
    topic, results = make_topic(), await kafka.create_topic_async(kafka.fresh_name("results"), partitions=2)
    service = App(kafka.fresh_name("billing"))
    out = service.async_producer(value=int)

    @service.handler(topic, value=int)
    async def handle(number: int) -> None:
        await out.send(results, number + 1)

    async with serve_app(service):
        assert await kafka.produce_async(topic, [1, 2]) == 2
        found = await kafka.consume_all_async(results, value=int, at_least=2)
    assert sorted(record.value for record in found) == [2, 3]
    kafka.delete_topics([results])


async def test_an_app_that_was_stopped_is_served_again(
    kafka: Kafka, serve_app: Callable[..., Any], kafka_topic: str
) -> None:
    service = App(kafka.fresh_name("billing"))
    handled: list[int] = []

    @service.handler(kafka_topic, value=int)
    async def handle(number: int) -> None:
        handled.append(number)

    for number in (1, 2):
        async with serve_app(service):
            await kafka.produce_async(kafka_topic, [number])
            await wait_until_async(lambda number=number: handled[-1:] == [number])
    assert handled == [1, 2]
