"""A handler that takes nothing of a record but its value gets the values of a run part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pytest

from ottla import Json
from ottla.app import App
from ottla.app.app import declarations_of
from ottla.app.handler.binding import bind
from ottla.app.handler.handler_context import Context
from ottla.consumer.model.run import Run, RunResult
from ottla.errors import RegistryUnavailable
from ottla.failures import Skip
from ottla.producer.record_sends import is_sender
from ottla.records import Malformed, Record, TopicPartition
from ottla.serdes import Serde, SerdeContext

COUNT = 250
"""Two whole parts and a half."""


@dataclass(eq=False)
class Order:
    number: int


class Orders(Serde[Order]):
    """Orders whose schema is unknown from a number on: the registry does not answer."""

    def __init__(self, unknown_from: int = COUNT) -> None:
        self.unknown_from = unknown_from
        self.decoded = 0
        self.refused = 0
        self.alive: WeakSet[Order] = WeakSet()

    def serialize(self, value: Order | None, ctx: SerdeContext) -> bytes | None:
        raise NotImplementedError

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> Order | Malformed | None:
        assert data is not None
        if int(data) >= self.unknown_from:
            self.refused += 1
            raise RegistryUnavailable("http://registry does not answer")
        order = Order(int(data))
        self.alive.add(order)
        self.decoded += 1
        return order


class Sender:
    """Stands for a producer: a handler may send with it."""


@pytest.fixture(params=["without producers", "with a producer"], autouse=True)
def senders(request: pytest.FixtureRequest) -> Iterator[None]:
    sender = Sender()
    if request.param == "with a producer":
        is_sender(sender)
    yield
    del sender


def deliver(app: App, values: list[bytes] | None = None, on_run: Callable[[Run], None] = lambda run: None) -> RunResult:
    """Deliver one run to the app's only handler, and wait for the result."""
    (route,) = declarations_of(app).routes
    raw = [b"%d" % number for number in range(COUNT)] if values is None else values
    records: list[Record[Any]] = [
        Record("orders", 0, offset, 0, b"k", value, [], b"k", value) for offset, value in enumerate(raw)
    ]
    run = Run(
        topic_partition=TopicPartition("orders", 0),
        epoch=1,
        route=route.name,
        records=records,
        attempt=1,
        started_ms=0,
    )
    on_run(run)
    invoker: Any = route.invoker(list(declarations_of(app).all_middlewares), {})
    found = invoker.deliver(run)
    return found if isinstance(found, RunResult) else found.wait()


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records or ()]


def test_values_come_in_order_and_are_freed_before_the_run_ends() -> None:
    app, serde = App("billing"), Orders()
    numbers: list[int] = []
    most_alive = 0

    @app.handler("orders", value=serde)
    def handle(order: Order) -> None:
        nonlocal most_alive
        numbers.append(order.number)
        most_alive = max(most_alive, len(serde.alive))

    assert deliver(app).done is None
    assert numbers == list(range(COUNT))
    assert most_alive <= 200


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
def test_a_malformed_value_in_a_later_part_fails_alone(ordering: Any) -> None:
    app = App("billing")
    seen: list[int] = []

    @app.handler("orders", value=Json(int), ordering=ordering)
    def handle(value: int) -> None:
        seen.append(value)

    values = [b"%d" % number for number in range(COUNT)]
    values[120] = b"{"
    result = deliver(app, values)

    assert [(record.offset, failure.kind) for record, failure in result.failures] == [(120, "malformed")]
    reached = range(120) if ordering == "partition" else [number for number in range(COUNT) if number != 120]
    assert seen == offsets(result.done) == list(reached)
    assert len(seen) + 1 + len(result.untouched) == COUNT


def test_a_handler_that_takes_malformed_values_gets_them_in_place() -> None:
    app = App("billing")
    seen: list[Any] = []

    @app.handler("orders", value=Json(int))
    def handle(value: int | Malformed) -> None:
        seen.append(value)

    values = [b"%d" % number for number in range(COUNT)]
    values[120] = b"{"

    assert deliver(app, values).done is None
    assert [at for at, value in enumerate(seen) if isinstance(value, Malformed)] == [120]
    assert seen[120].serde == "Json"


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@pytest.mark.parametrize("unknown_from", [0, 150])
def test_what_cannot_be_decoded_now_comes_again(ordering: Any, unknown_from: int) -> None:
    app, serde = App("billing"), Orders(unknown_from)
    seen: list[int] = []

    @app.handler("orders", value=serde, ordering=ordering)
    def handle(order: Order) -> None:
        seen.append(order.number)

    result = deliver(app)

    decoded = 100 if unknown_from else 0  # whole parts
    assert seen == offsets(result.done) == list(range(decoded))
    failed = [record.offset for record, _ in result.failures]
    assert failed == (list(range(decoded, COUNT)) if ordering == "unordered" else [decoded])
    assert offsets(result.untouched) == ([] if ordering == "unordered" else list(range(decoded + 1, COUNT)))
    assert {failure.message for _, failure in result.failures} == {"http://registry does not answer"}
    assert serde.refused == 1  # each further request would wait for its timeout, too


@pytest.mark.parametrize("unknown_from", [COUNT, 150])
def test_a_failure_that_holds_the_partition_decodes_no_further_part(unknown_from: int) -> None:
    app, serde = App("billing"), Orders(unknown_from)

    @app.handler("orders", value=serde, ordering="partition")
    def handle(order: Order) -> None:
        if order.number == 50:
            raise ValueError("out of stock")

    result = deliver(app)

    assert [record.offset for record, _ in result.failures] == [50]
    assert offsets(result.done) == list(range(50))
    assert offsets(result.untouched) == list(range(51, COUNT))
    assert (serde.decoded, serde.refused) == (100, 0)


def test_the_values_behind_a_failure_are_decoded_and_each_is_handled_once() -> None:
    app = App("billing")
    seen: list[int] = []

    @app.handler("orders", value=Orders(), ordering="unordered")
    def handle(order: Order) -> Skip | None:
        seen.append(order.number)
        if order.number == 150:
            raise ValueError("out of stock")
        return Skip() if order.number in (3, 201) else None

    result = deliver(app)

    assert seen == list(range(COUNT))
    assert [record.offset for record, _ in result.failures] == [150]
    assert offsets(result.done) == [number for number in range(COUNT) if number != 150]
    assert result.skipped == 2


def test_a_cancelled_run_ends_behind_the_record_that_it_is_at() -> None:
    app = App("billing")
    runs: list[Run] = []

    @app.handler("orders", value=Orders())
    def handle(order: Order) -> None:
        runs[0].is_cancelled = order.number == 120

    result = deliver(app, on_run=runs.append)

    assert offsets(result.done) == list(range(121))
    assert offsets(result.untouched) == list(range(121, COUNT))
    assert not result.failures


def test_a_middleware_gets_the_record_with_its_value() -> None:
    app = App("billing")
    seen: list[int] = []

    @app.middleware
    def around(record: Any, context: Any, call_next: Any) -> Any:
        seen.append(record.value.number)
        return call_next(record)

    @app.handler("orders", value=Orders())
    def handle(order: Order) -> None:
        pass

    assert deliver(app).done is None
    assert seen == list(range(COUNT))


def by_keyword(*, value: Order) -> None: ...


def with_context(order: Order, context: Context) -> None: ...


def with_key(order: Order, key: bytes) -> None: ...


def with_headers(order: Order, headers: Any) -> None: ...


def of_record(record: Record[Order]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "takes_values"),
    [(by_keyword, True), (with_context, True), (with_key, False), (with_headers, False), (of_record, False)],
)
def test_only_handlers_of_the_value_alone_are_called_with_it(handler: Callable[..., Any], takes_values: bool) -> None:
    assert (bind(handler, is_batch=False).of_value is not None) is takes_values


def test_a_value_reaches_the_parameter_that_it_is_bound_to() -> None:
    found: list[Any] = []

    def handle(subject: Order, context: Context) -> None:
        found.append((subject, context))

    call = bind(handle, is_batch=False).of_value
    assert call is not None
    call("value", "context")  # type: ignore[arg-type]
    assert found == [("value", "context")]
