"""What can be declared, what is refused where it is declared, and how a handler's parameters get a record's parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    App,
    BindingError,
    ConfigError,
    Context,
    FlowLimits,
    Inbox,
    Int64,
    Malformed,
    Ordering,
    Record,
    Retry,
    Skip,
)
from ottla.app.app import declarations_of
from ottla.app.handler.binding import bind
from ottla.app.handler.middleware import wrap
from ottla.records import TopicPartition
from ottla.stores import Sqlite
from ottla.testing import make_record

CONTEXT = Context(group="g", handler="h", topic_partition=TopicPartition("t", 0), attempt=2, state={})
RECORD = make_record("value", key="key", headers=[("h", b"1")])


def call(handler: Callable[..., Any]) -> Any:
    return bind(handler, is_batch=False).call(RECORD, CONTEXT)


@dataclass
class Order:
    id: int = 0


def one_of_any_name(order: Order) -> Any:
    return order


def by_name(key: str, value: str, headers: Any, context: Any, record: Any) -> Any:
    return (key, value, headers, context, record)


def by_annotation(it: Record[Order], ctx: Context) -> Any:
    return (it, ctx)


def keyword_only(order: Order, *, key: str, context: Context) -> Any:
    return (order, key, context)


def with_a_default(order: Order, limit: int = 7) -> Any:
    return (order, limit)


def with_rest(order: Order, *args: Any, **kwargs: Any) -> Any:
    return (order, args, kwargs)


class TestBinding:
    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (one_of_any_name, "value"),
            (by_name, ("key", "value", [("h", b"1")], CONTEXT, RECORD)),
            (by_annotation, (RECORD, CONTEXT)),
            (keyword_only, ("value", "key", CONTEXT)),
            (with_a_default, ("value", 7)),
            (with_rest, ("value", (), {})),
            (lambda: "nothing", "nothing"),
            (lambda record: record, RECORD),
        ],
    )
    def test_parameters_are_bound_by_name_then_by_annotation(self, handler: Callable[..., Any], expected: Any) -> None:
        assert call(handler) == expected

    def test_methods_partials_and_objects_are_handlers_too(self) -> None:
        class Service:
            def on_order(self, order: Order) -> Any:
                return order

            def __call__(self, value: str, key: str) -> Any:
                return (value, key)

        assert call(Service().on_order) == "value"
        assert call(Service()) == ("value", "key")
        assert call(functools.partial(keyword_only, key="fixed")) == ("value", "key", CONTEXT)

    def test_a_batch_handler_gets_lists(self) -> None:
        def by_name(values: list[str], keys: list[str]) -> Any:
            return (values, keys)

        def by_annotation(these: list[Record[Order]], context: Context) -> Any:
            return these

        def of_any_name(orders: list[Order]) -> Any:
            return orders

        assert bind(by_name, is_batch=True).call([RECORD, RECORD], CONTEXT) == (["value"] * 2, ["key"] * 2)
        assert bind(by_annotation, is_batch=True).call([RECORD], CONTEXT) == [RECORD]
        assert bind(of_any_name, is_batch=True).call([RECORD], CONTEXT) == ["value"]

    @pytest.mark.parametrize("is_batch", [False, True])
    def test_two_parameters_that_nothing_names_are_refused_with_what_can_be_bound(self, is_batch: bool) -> None:
        def handler(order: Order, customer: str) -> None: ...

        with pytest.raises(BindingError, match=r"cannot bind 'order', 'customer'.*context"):
            bind(handler, is_batch=is_batch)

    def test_one_too_many_beside_the_value_is_refused(self) -> None:
        def handler(value: Order, customer: str) -> None: ...

        with pytest.raises(BindingError, match="cannot bind 'customer'"):
            bind(handler, is_batch=False)

    def test_annotations_that_do_not_resolve_are_read_as_text(self) -> None:
        def handler(it: Record[NotImported], ctx: Context) -> Any:  # type: ignore[name-defined]  # noqa: F821
            return (it, ctx)

        assert call(handler) == (RECORD, CONTEXT)

    @pytest.mark.parametrize("annotation", [Order | Malformed, "Order | Malformed"])
    def test_a_handler_may_ask_for_malformed_values(self, annotation: Any) -> None:
        def handler(value: Any) -> None: ...

        handler.__annotations__["value"] = annotation
        assert bind(handler, is_batch=False).wants_malformed

    def test_async_handlers_are_known_as_such(self) -> None:
        async def handler(value: Any) -> None: ...

        class Service:
            async def __call__(self, value: Any) -> None: ...

        assert bind(handler, is_batch=False).is_async
        assert bind(Service(), is_batch=False).is_async
        assert bind(functools.partial(handler), is_batch=False).is_async
        assert not bind(lambda value: None, is_batch=False).is_async


class TestMiddleware:
    def test_the_first_is_the_outermost(self) -> None:
        seen: list[str] = []

        def layer(name: str) -> Callable[..., Any]:
            def middleware(record: Any, context: Any, call_next: Callable[[Any], Any]) -> Any:
                seen.append(f"{name} in")
                outcome = call_next(record)
                seen.append(f"{name} out")
                return outcome

            return middleware

        binding = wrap(bind(lambda value: seen.append(value), is_batch=False), [layer("a"), layer("b")])
        binding.call(RECORD, CONTEXT)

        assert seen == ["a in", "b in", "value", "b out", "a out"]

    def test_it_may_answer_without_calling_on_and_may_change_the_record(self) -> None:
        handled: list[str] = []

        def drop(record: Any, context: Any, call_next: Callable[[Any], Any]) -> Any:
            return Skip("test traffic") if record.header("test") else call_next(make_record("changed"))

        binding = wrap(bind(lambda value: handled.append(value), is_batch=False), [drop])

        assert binding.call(make_record("x", headers=[("test", b"1")]), CONTEXT) == Skip("test traffic")
        assert binding.call(RECORD, CONTEXT) is None
        assert handled == ["changed"]

    async def test_an_async_middleware_makes_its_handler_async(self) -> None:
        async def around(record: Any, context: Any, call_next: Callable[[Any], Any]) -> Any:
            return [await call_next(record)]

        binding = wrap(bind(lambda value: value, is_batch=False), [around])

        assert binding.is_async
        assert await binding.call(RECORD, CONTEXT) == ["value"]

    async def test_a_sync_middleware_passes_an_async_handlers_awaitable_on(self) -> None:
        async def handler(value: str) -> str:
            return value

        binding = wrap(bind(handler, is_batch=False), [lambda record, context, call_next: call_next(record)])

        assert binding.is_async
        assert await binding.call(RECORD, CONTEXT) == "value"


class TestDeclarations:
    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"value": object()}, "value="),
            ({"key": dict}, "key="),
            ({"concurrency": 0}, "concurrency"),
            ({"concurrency": "4"}, "concurrency must be of type int, got '4'"),
            ({"retry": 5}, "retry must be of type RetryPolicy, got 5"),
            ({"retry_topics": (10, 60)}, "retry_topics must be of type RetryTopics"),
            ({"dead_letter_topic": "dead letters"}, "topic: found 'dead letters', wanted a name of"),
            ({"max_records_per_turn": 0}, "max_records_per_turn"),
            ({"ordering": "random"}, "'partition', 'key', 'unordered'"),
            ({"fair_by": "topics"}, "fair_by"),
            ({"dead_letter_topic": "orders"}, "come back for ever"),
            ({"on_error": {KeyError: Retry}}, "KeyError"),
        ],
    )
    def test_what_cannot_work_is_refused_where_it_is_declared(self, options: dict[str, Any], named: str) -> None:
        app = App("g")

        with pytest.raises(ConfigError, match=named):
            app.handler("orders", **options)(lambda value: None)

    @pytest.mark.parametrize("topics", [("or ders",), ("",), ("orders", "x" * 250), (["orders"],), (print,)])
    def test_what_is_no_topics_name_is_refused(self, topics: tuple[Any, ...]) -> None:
        with pytest.raises(ConfigError, match=r"found .* wanted .*name"):
            App("g").handler(*topics)(lambda value: None)

    def test_a_batch_of_a_partition_has_no_order_by_key(self) -> None:
        with pytest.raises(ConfigError, match="'key' has no meaning"):
            App("g").handler("orders", batch=True, ordering="key")(lambda values: None)

    def test_runs_that_a_store_marks_are_larger(self, tmp_path: Path) -> None:
        app = App("g")
        store = Sqlite(str(tmp_path / "once.db"))

        @app.handler("plain")
        def plain(value: bytes) -> None: ...

        @app.handler("claims", inbox=Inbox(store))
        def claims(value: bytes) -> None: ...

        @app.handler("marks", inbox=Inbox(store))
        def marks(value: bytes, transaction: Any) -> None: ...

        @app.handler("offsets", offsets=store)
        def offsets(value: bytes) -> None: ...

        @app.handler("said", offsets=store, max_records_per_turn=7)
        def said(value: bytes) -> None: ...

        @app.handler("batches", offsets=store, batch=True, max_batch=1_000)
        def batches(values: list[bytes]) -> None: ...

        plans = [route.plan() for route in declarations_of(app).routes]
        assert {plan.name: (plan.max_records_per_turn, plan.at_first) for plan in plans} == {
            "plain": (128, None),
            "claims": (500, 128),
            "marks": (500, 128),
            "offsets": (500, 128),
            "said": (7, 128),
            "batches": (1_000, None),
        }

    def test_a_handler_needs_a_topic(self) -> None:
        with pytest.raises(ConfigError, match="at least one topic"):
            App("g").handler()(lambda value: None)

    def test_a_topic_has_one_handler_per_group(self) -> None:
        app = App("g")
        app.handler("orders", name="one")(lambda value: None)

        with pytest.raises(ConfigError, match="two handlers in one group"):
            app.handler("orders", name="two")(lambda value: None)
        app.handler("orders", name="two", group="other")(lambda value: None)
        assert {group: len(routes) for group, routes in declarations_of(app).routes_by_group().items()} == {
            "g": 1,
            "other": 1,
        }

    def test_the_decorator_gives_the_function_back(self) -> None:
        def on_order(order: Order) -> Order:
            return order

        decorated = App("g").handler("orders")(on_order)

        assert decorated is on_order

    def test_the_apps_defaults_hold_unless_a_handler_says_otherwise(self) -> None:
        app = App("g", dead_letter_topic="dead", on_error={KeyError: Skip()})
        app.handler("a", name="a")(lambda value: None)
        app.handler("b", name="b", dead_letter_topic="b-dead", on_error={ValueError: Skip()}, key=Int64)(lambda v: None)
        a, b = declarations_of(app).routes

        assert (a.dead_letter_topic, b.dead_letter_topic) == ("dead", "b-dead")
        assert set(b.on_error or {}) == {KeyError, ValueError}
        assert a.ordering is Ordering.PARTITION

    def test_an_app_needs_a_group(self) -> None:
        with pytest.raises(ConfigError, match="group"):
            App("")

    def test_importing_and_declaring_loads_no_kafka_client(self) -> None:
        import subprocess
        import sys

        code = (
            "import sys, ottla\n"
            "app = ottla.App('g', flow=ottla.FlowLimits())\n"
            "app.handler('t', value=ottla.Json())(lambda value: None)\n"
            "heavy = ('confluent_kafka', 'aiokafka', 'structlog', 'fastavro')\n"
            "print([name for name in heavy if name in sys.modules])\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

        assert done.stdout.strip() == "[]"
        assert FlowLimits().low_records < FlowLimits().high_records
