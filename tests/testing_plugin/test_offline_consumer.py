"""`consumer_for`: the answers it gives are those of the real consumer core."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ottla.app import App, Context
from ottla.errors import ConfigError, LifecycleError, RegistryUnavailable
from ottla.failures import Ack, Dead, InvalidRecord, Outcome, Retry, RetryPolicy, Skip
from ottla.records import Malformed, Record
from ottla.serdes import Json, Str
from ottla.testing import consumer_for

TWICE = RetryPolicy(max_attempts=2, initial_s=1.0, jitter=0.0)


@dataclasses.dataclass
class Order:
    id: int

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("id is negative")


def shop(handler: Any, **declaration: Any) -> Any:
    declaration.setdefault("dead_letter_topic", "dead")
    declaration.setdefault("retry", TWICE)
    return consumer_for(handler, value=Json(Order), **declaration)


def test_a_record_that_is_handled_is_done_at_the_first_attempt_and_committed() -> None:
    seen: list[Order] = []
    consumer = shop(lambda order: seen.append(order))
    delivery = consumer.deliver(Order(1))
    assert (delivery.outcome, delivery.attempts, delivery.waited_s) == ("done", 1, 0.0)
    assert seen == [Order(1)]
    assert consumer.position() == 1


@pytest.mark.parametrize(
    ("raw", "kind"), [(b"{", "malformed"), (b'{"id": -1}', "invalid"), (b'{"id": "x"}', "invalid")]
)
def test_bytes_that_are_no_order_are_dead_with_their_kind_and_never_reach_the_handler(raw: bytes, kind: str) -> None:
    consumer = shop(lambda order: None)
    delivery = consumer.deliver(raw, key=b"k", headers=[("h", b"\xff")])
    assert (delivery.outcome, delivery.attempts) == ("dead", 1)
    assert delivery.dead_letter.kind == kind
    assert (delivery.dead_letter.topic, delivery.dead_letter.key, delivery.dead_letter.value) == ("dead", b"k", raw)
    assert ("h", b"\xff") in delivery.dead_letter.headers
    assert consumer.calls == []
    assert consumer.dead_letters == [delivery.dead_letter]
    assert consumer.position() == 1


def test_a_handler_that_fails_once_is_called_again_after_the_back_off_without_waiting_for_it() -> None:
    attempts: list[int] = []

    def on_order(order: Order, context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise ConnectionError("database is away")

    consumer = shop(on_order)
    delivery = consumer.deliver(Order(1))
    assert (delivery.outcome, delivery.attempts, attempts) == ("done", 2, [1, 2])
    assert delivery.waited_s == pytest.approx(1.0, abs=0.01)
    assert [type(call.error) for call in consumer.calls] == [ConnectionError, type(None)]


def test_a_handler_that_keeps_failing_gives_a_dead_letter_with_its_error() -> None:
    def on_order(order: Order) -> None:
        raise ConnectionError("database is away")

    delivery = shop(on_order).deliver(Order(1))
    assert (delivery.outcome, delivery.attempts) == ("dead", 2)
    assert delivery.reason == "ConnectionError: database is away"
    assert delivery.dead_letter.view.attempts == 2


def test_without_a_dead_letter_topic_the_record_stops_its_partition_and_the_rest_waits() -> None:
    def on_order(order: Order) -> None:
        if order.id == 2:
            raise InvalidRecord("no such customer")

    consumer = shop(on_order, dead_letter_topic=None)
    deliveries = consumer.deliver_all([Order(1), Order(2), Order(3)])
    assert [delivery.outcome for delivery in deliveries] == ["done", "stopped", "waiting"]
    assert "no dead letter topic is declared" in deliveries[1].reason
    assert consumer.position() == 1


@pytest.mark.parametrize(
    ("outcome", "wanted", "attempts"),
    [(None, "done", 1), (Ack(), "done", 1), (Skip("old"), "skipped", 1), (Dead("no"), "dead", 1), (Retry(), "dead", 2)],
)
def test_outcomes_that_a_handler_returns_are_what_becomes_of_the_record(
    outcome: Outcome | None, wanted: str, attempts: int
) -> None:
    delivery = shop(lambda order: outcome).deliver(Order(1))
    assert (delivery.outcome, delivery.attempts) == (wanted, attempts)


def test_a_handler_may_ask_for_malformed_values() -> None:
    seen: list[Any] = []

    def on_order(order: Order | Malformed) -> None:
        seen.append(order)

    assert shop(on_order).deliver(b"{").outcome == "done"
    assert isinstance(seen[0], Malformed)


def test_a_batch_handler_gets_what_was_delivered_together_and_answers_one_by_one() -> None:
    sizes: list[int] = []

    def on_orders(values: list[Order]) -> list[Outcome]:
        sizes.append(len(values))
        return [Dead("odd") if order.id % 2 else Ack() for order in values]

    deliveries = shop(on_orders, batch=True).deliver_all([Order(n) for n in range(4)])
    assert sizes == [4]
    assert [delivery.outcome for delivery in deliveries] == ["done", "dead", "done", "dead"]


def test_an_async_handler_runs_in_a_plain_test() -> None:
    async def on_order(order: Order) -> Outcome:
        return Skip() if order.id == 2 else Ack()

    assert [d.outcome for d in shop(on_order).deliver_all([Order(1), Order(2)])] == ["done", "skipped"]


async def test_in_an_async_test_the_same_loop_runs_the_handler() -> None:
    async def on_order(order: Order) -> None:
        if order.id == 2:
            raise ConnectionError

    consumer = shop(on_order)
    assert (await consumer.deliver_async(Order(1))).outcome == "done"
    assert [d.outcome for d in await consumer.deliver_all_async([Order(2), Order(3)])] == ["dead", "done"]
    with pytest.raises(LifecycleError, match="deliver_async"):
        consumer.deliver(Order(4))


def test_an_app_is_tested_with_its_own_declarations_topics_and_middleware() -> None:
    app = App("billing", dead_letter_topic="billing.dead")
    passed: list[str] = []

    @app.middleware
    def note(record: Any, context: Context, call_next: Any) -> Any:
        passed.append(f"{context.handler} {record.position}")
        return call_next(record)

    @app.handler("orders", value=Json(Order), key=Str())
    def on_order(record: Record[Order]) -> None: ...

    @app.handler("notes", value=Str())
    def on_note(text: str) -> None: ...

    consumer = consumer_for(app)
    assert consumer.deliver(Order(1), topic="orders", key="k", partition=3).record.key == "k"
    assert consumer.deliver("hello", topic="notes").outcome == "done"
    assert passed == ["on_order orders-3@0", "on_note notes-0@0"]
    with pytest.raises(ConfigError, match=r"topic= one of \['notes', 'orders'\]"):
        consumer.deliver("hello")


def test_a_record_that_is_retried_for_ever_is_reported_not_waited_for() -> None:
    def on_order(order: Order) -> None:
        raise RegistryUnavailable("registry is away")

    with pytest.raises(TimeoutError, match="still being retried after 3600 s, last error: RegistryUnavailable"):
        shop(on_order).deliver(Order(1))


def test_an_app_takes_no_second_declaration() -> None:
    app = App("billing")
    with pytest.raises(ConfigError, match="no handlers"):
        consumer_for(app)
    with pytest.raises(ConfigError, match="declarations already"):
        consumer_for(app, value=Str())
