"""Priorities: what is declared and refused, and what reaches handlers and callers through both clients."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, CommitPolicy, ConfigError, InputError, Json, Priorities, Producer, Record, RetryTopics
from ottla.app.app import declarations_of
from ottla.app.declaration.group_settings import group_settings
from ottla.config.priorities import topics_of
from ottla.testing import consumer_for, wait_until
from tests.kit.both_shells import CONSUMERS, PRODUCERS

SHELLS = ["threads", "asyncio", "columns"]
OFTEN = CommitPolicy(every_s=0.05)
NAMES = ("urgent", "normal", "bulk")


def test_each_priority_has_a_topic_and_the_default_one_the_plain_name() -> None:
    orders = Priorities("orders", NAMES)
    assert orders.topics == ("orders.urgent", "orders", "orders.bulk")
    assert orders.at_least_every == (1, 4, 20)
    assert orders == "orders"
    assert Priorities("orders", ("high", "low"), default="low").topics == ("orders.high", "orders")
    assert topics_of("handler", ("a", "b")) == (("a", "b"), None)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_is_the_same(copied: Callable[[Priorities], Priorities]) -> None:
    orders = Priorities("orders", ("high", "low"), default="low", at_least_every=(1, 9))
    again = copied(orders)
    assert (again, again.topics, again.at_least_every) == (orders, orders.topics, (1, 9))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"names": ("urgent",)}, "two or more"),
        ({"names": ("a", "a"), "default": "a"}, "different"),
        ({"names": "ab", "default": "a"}, "two or more"),
        ({"names": ("high", "low")}, "default"),
        ({"names": NAMES, "default": "slow"}, "default"),
        ({"names": NAMES, "at_least_every": (1, 4)}, "one for each"),
        ({"names": NAMES, "at_least_every": (2, 4, 20)}, "wanted 1"),
        ({"names": NAMES, "at_least_every": (1, 2, 2)}, "less than 1"),
        ({"names": NAMES, "at_least_every": (1, 0, 2)}, "1 or more"),
        ({"names": ("normal", "a b")}, "letters, digits"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(arguments: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted) as found:
        Priorities("orders", **arguments)
    assert "orders" in str(found.value)


def test_a_handler_refuses_what_does_not_go_together() -> None:
    orders = Priorities("orders", NAMES)
    app = App("billing")
    for options, wanted in (
        ({"topics": (orders, "returns")}, "beside other topics"),
        ({"topics": ("orders",), "reserve": {"urgent": 1}}, "reserve="),
        ({"topics": (orders,), "reserve": {"urgent": 1}}, "at least one left"),
        ({"topics": (orders,), "reserve": {"fast": 1}, "concurrency": 2}, "wanted one of"),
        ({"topics": (orders,), "reserve": {"bulk": 1}, "concurrency": 2}, "lowest"),
        ({"topics": (orders,), "reserve": {"urgent": -1}, "concurrency": 2}, "0 or more"),
    ):
        given = dict(options)
        with pytest.raises(ConfigError, match=wanted):
            app.handler(*given.pop("topics"), **given)(lambda record: None)  # type: ignore[arg-type, call-overload]


def test_a_group_with_priorities_fetches_little_at_a_time_unless_somebody_chose_more() -> None:
    def fetched(topics: str, **settings: int) -> tuple[int, int | None, int]:
        app = App("billing", settings=settings, bootstrap_servers="localhost:9")
        app.handler(topics, retry_topics=RetryTopics(), dead_letter_topic="dead")(lambda record: None)
        found = group_settings("billing", declarations_of(app).routes, app.bootstrap_servers, app.settings)
        for client in (found.to_aiokafka(), found.to_confluent()):
            for name in ("max.partition.fetch.bytes", "fetch.max.wait.ms"):
                assert found[name] in client.values()
        return found["max.partition.fetch.bytes"], found.get("queued.min.messages"), found["fetch.max.wait.ms"]

    orders = Priorities("orders", NAMES)
    assert fetched("orders") == (1 << 20, 1_000, 500)
    assert fetched(orders) == (16_384, 1_000, 100)
    chosen = {"max.partition.fetch.bytes": 1 << 18, "queued.min.messages": 9}
    with pytest.raises(ConfigError, match=r"queued\.min\.messages"):  # aiokafka refuses it of those who choose it
        fetched(orders, **chosen)
    chosen = {"max.partition.fetch.bytes": 1 << 18, "fetch.max.wait.ms": 500}
    assert fetched(orders, **chosen) == (1 << 18, 1_000, 500)
    for consumer_type in CONSUMERS.values():
        consumer = consumer_type(orders, group="g", bootstrap_servers="localhost:9")
        assert consumer._member.settings["max.partition.fetch.bytes"] == 16_384


def test_a_send_names_a_priority_that_is_declared() -> None:
    def handle(value: bytes) -> None:
        out.send(orders, b"u", priority="urgent")
        out.send(orders, b"n")
        for topic, priority in ((orders, "slow"), ("plain", "urgent")):
            with pytest.raises(InputError, match="priority"):
                out.send(topic, b"x", priority=priority)

    orders = Priorities("orders", NAMES)
    app = App("shop")
    out = app.producer()
    app.handler("start")(handle)
    consumer = consumer_for(app)
    assert consumer.deliver(b"go").outcome == "done"
    assert [(record.topic, record.value) for record in consumer.sent] == [("orders.urgent", b"u"), ("orders", b"n")]


@pytest.fixture
def orders(make_topic: Callable[..., str], kafka: Any) -> Priorities:
    made = Priorities(make_topic("orders"), NAMES)
    for topic in (made.topics[0], made.topics[2]):
        kafka.create_topic(topic)
    return made


def test_urgent_records_overtake_a_backlog_and_bulk_goes_on(
    shell: Any, kafka: Any, orders: Priorities, kafka_group: str, wait: Any
) -> None:
    handled: list[tuple[str, int]] = []
    begun, go_on = threading.Event(), threading.Event()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(orders, value=Json(), max_records_per_turn=5)
    def handle(record: Record[int]) -> None:
        begun.set()
        go_on.wait(60)
        handled.append((record.topic, record.value))

    with Producer(kafka.bootstrap_servers, value=Json()) as producer:
        for number in range(300):
            producer.send(orders, number, priority="bulk")
        producer.flush()
        shell.start(app)
        assert begun.wait(60)
        for number in range(200):
            producer.send(orders, number, priority="urgent")
        producer.flush()
    wait(lambda: _fetched(app) >= 500, timeout_s=30)
    go_on.set()
    wait(lambda: len(handled) == 500, timeout_s=60)

    urgent = orders.topic("urgent")
    places = [index for index, (topic, _) in enumerate(handled) if topic == urgent]
    assert places[0] <= 10, "no more than the turn in hand, and one that was owed, comes before"
    while_urgent = handled[places[0] : places[-1]]
    bulk = sum(topic != urgent for topic, _ in while_urgent)
    assert 5 <= bulk <= 20, "bulk has its twentieth turn meanwhile, and no more"
    for topic in orders.topics:
        own = [number for name, number in handled if name == topic]
        assert own == sorted(own), "each priority keeps its own order"


def _fetched(member: Any, topic: str | None = None) -> int:
    partitions = member.health().partitions
    return sum(each.buffered_records for each in partitions if topic in (None, each.topic_partition.topic))


def test_a_reserved_worker_is_free_for_urgent_records_while_bulk_blocks_all_others(
    shell: Any, kafka: Any, orders: Priorities, kafka_group: str, wait: Any
) -> None:
    handled: list[str] = []
    blocked = threading.Semaphore(0)
    release = threading.Event()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(
        orders, value=Json(), ordering="unordered", concurrency=3, max_records_per_turn=1, reserve={"urgent": 1}
    )
    def handle(record: Record[int]) -> None:
        if record.topic == orders.topic("bulk"):
            blocked.release()
            release.wait(60)
        handled.append(record.topic)

    with Producer(kafka.bootstrap_servers, value=Json()) as producer:
        for number in range(20):
            producer.send(orders, number, priority="bulk")
    shell.start(app)
    try:
        assert blocked.acquire(timeout=60)
        assert blocked.acquire(timeout=60)
        kafka.produce(orders.topic("urgent"), range(3), value=Json())
        wait(lambda: handled == [orders.topic("urgent")] * 3, timeout_s=30)
    finally:
        release.set()
    wait(lambda: len(handled) == 23, timeout_s=30)


@pytest.mark.representative("asyncio")
def test_a_retry_keeps_its_priority(shell: Any, kafka: Any, orders: Priorities, kafka_group: str, wait: Any) -> None:
    handled: list[str] = []
    failed: list[str] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(orders, value=Json(), retry_topics=RetryTopics(delays_s=(0.2,)), max_records_per_turn=1)
    def handle(record: Record[str]) -> None:
        if record.value == "urgent" and not failed:
            failed.append(record.value)
            raise RuntimeError("not yet")
        time.sleep(0.005)  # it takes its time, or nothing would be left to overtake
        handled.append(record.value)

    kafka.produce(orders.topic("bulk"), ["bulk"] * 600, value=Json())
    kafka.produce(orders.topic("urgent"), ["urgent"], value=Json())
    shell.start(app)
    wait(lambda: "urgent" in handled, timeout_s=60)
    assert len(handled) < 550, "the retry did not wait behind the backlog"


@pytest.mark.parametrize("shell_name", ["threads", "asyncio"])
async def test_a_pulled_consumer_gives_out_what_is_urgent_first(
    shell_name: str, kafka: Any, orders: Priorities, kafka_group: str
) -> None:
    async with PRODUCERS[shell_name](kafka.bootstrap_servers) as producer:
        for _ in range(200):
            producer.send(orders, b"bulk", priority="bulk")
        await producer.flush()
        async with CONSUMERS[shell_name](
            orders, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers, max_records_per_turn=5
        ) as consumer:
            taken: list[bytes] = []

            async def take() -> None:
                for record in await consumer.poll(1, max_records=7):  # more than a run has
                    taken.append(record.value)
                    consumer.ack(record)

            while len(taken) < 10:
                await take()
            for _ in range(50):
                producer.send(orders, b"urgent", priority="urgent")
            await producer.flush()
            urgent = orders.topic("urgent")
            # Not all records together: a run of which some are taken counts as a whole.
            await asyncio.to_thread(wait_until, lambda: _fetched(consumer, urgent) == 50, 30)
            while taken.count(b"urgent") < 50:
                await take()
            first = taken.index(b"urgent")
            assert taken[first : first + 50].count(b"bulk") <= 10
            while len(taken) < 250:
                await take()
            assert taken.count(b"bulk") == 200
