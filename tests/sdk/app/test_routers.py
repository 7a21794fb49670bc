"""`Router`: what modules declare without the app, and what becomes of it when it is included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest

from ottla import App, ConfigError, Context, Int64, Provide, Router, TagHeader
from ottla.app.app import declarations_of
from ottla.testing import consumer_for


@contextmanager
def open_name() -> Iterator[str]:
    yield "real"


@contextmanager
def open_fake() -> Iterator[str]:
    yield "fake"


def module(seen: list[Any]) -> Router:
    """What a module of handlers declares."""
    router = Router()
    events = router.topic("events", by=TagHeader("type"), ordering="key")

    @router.handler("orders", value=Int64(), ordering="key", concurrency=2)
    def on_order(number: int) -> None:
        seen.append(("order", number))

    @events.on("a", value=Int64())
    def on_a(number: int, name: Annotated[str, Provide(open_name)]) -> None:
        seen.append(("a", number, name))

    @events.otherwise
    def on_other(number: bytes) -> None:
        seen.append(("other", number))

    @router.middleware
    def noting(record: Any, context: Context, call_next: Any) -> Any:
        seen.append(context.handler)
        return call_next(record)

    return router


def test_what_a_router_declares_runs_in_the_app() -> None:
    seen: list[Any] = []
    app = App("billing")
    app.include(module(seen))
    assert [route.name for route in declarations_of(app).routes] == ["on_order", "events"]
    consumer = consumer_for(app)
    number = (7).to_bytes(8)
    with app.override({open_name: open_fake}):
        consumer.deliver(7, topic="orders")
        consumer.deliver(number, topic="events", headers=[("type", b"a")])
        consumer.deliver(b"?", topic="events", headers=[("type", b"b")])
    assert seen == ["on_order", ("order", 7), "events", ("a", 7, "fake"), "events", ("other", b"?")]


def test_hooks_and_queues_are_the_apps() -> None:
    router, calls = Router(), list[str]()

    @router.on_start
    def start() -> None:
        calls.append("start")

    @router.on_stop
    def stop() -> None:
        calls.append("stop")

    @router.queue("images", value=str)
    def resize(image: str) -> None: ...

    app = App("billing", dead_letter_topic="dead")
    app.include(router)
    parts = declarations_of(app)
    assert [route.queue is not None for route in parts.routes] == [True]
    assert parts.on_start == [start]
    assert parts.on_stop == [stop]


def test_errors_that_depend_on_the_app_are_raised_where_it_includes() -> None:
    app = App("billing")
    app.handler("orders", name="first")(lambda value: None)
    with pytest.raises(ConfigError, match="topic 'orders' has two handlers"):
        app.include(module([]))
    without = Router()
    without.topic("events", by=TagHeader("type"))
    with pytest.raises(ConfigError, match="found no handler of an event type"):
        App("billing").include(without)
    with pytest.raises(ConfigError, match="wanted a Router"):
        app.include(app)  # type: ignore[arg-type]


def test_what_is_declared_after_the_include_is_refused() -> None:
    router = module([])
    App("billing").include(router)
    late: list[Callable[[], object]] = [
        lambda: router.handler("late")(lambda value: None),
        lambda: router.topic("late", by=TagHeader("type")),
        lambda: router.on_start(print),
        lambda: App("another").include(router),
    ]
    for declare in late:
        with pytest.raises(ConfigError, match="after app 'billing' had included"):
            declare()


def test_errors_that_no_app_decides_are_raised_where_they_are_written() -> None:
    router = Router()
    with pytest.raises(ConfigError, match="found retires="):
        router.handler("orders", retires=None)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="concurrency"):
        router.queue("jobs", concurrency=0)
