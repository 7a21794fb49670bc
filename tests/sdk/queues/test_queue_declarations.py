"""What `@app.queue` takes, and what it refuses where it is declared."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity import stop_after_delay

from ottla import App, ConfigError, Context, Dead, Inbox, Json, RetryPolicy
from ottla.app.app import declarations_of
from ottla.queues.queue import Queue
from ottla.stores import Memory
from ottla.testing import consumer_for


def test_an_app_with_a_queue_alone_gives_it_its_own_name() -> None:
    app = App("resize", dead_letter_topic="dead")

    @app.queue("images", concurrency=4, max_attempts=3, max_job_s=60)
    def resize(value: bytes) -> None: ...

    [route] = declarations_of(app).queues
    assert route.group == "resize"
    assert route.queue is not None
    assert (route.queue.max_attempts, route.queue.max_job_ms, route.queue.start) == (3, 60_000, "earliest")
    assert declarations_of(app).routes_by_consumer_group() == {}


def test_a_queue_beside_handlers_needs_a_group_of_its_own() -> None:
    app = App("shop", dead_letter_topic="dead")

    @app.handler("orders")
    def on_order(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match=r"group='shop.queue'"):

        @app.queue("images")
        def resize(value: bytes) -> None: ...

    @app.queue("images", group="shop.queue")
    def resize_there(value: bytes) -> None: ...


def test_a_queue_needs_a_dead_letter_topic() -> None:
    app = App("resize")
    with pytest.raises(ConfigError, match="dead_letter_topic"):

        @app.queue("images")
        def resize(value: bytes) -> None: ...


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"start": "newest"}, "start: found 'newest', wanted 'earliest' or 'latest'"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 3, "retry": RetryPolicy()}, "both say when"),
        ({"retry": RetryPolicy(max_attempts=None)}, "must end after a number of attempts"),
        ({"retry": RetryPolicy(stop=stop_after_delay(5))}, "must end after a number of attempts"),
        ({"max_job_s": 0.1}, "max_job_s"),
        ({"concurrency": 0}, "concurrency"),
        ({"retry": 5}, "retry must be of type RetryPolicy, got 5"),
        ({"group": 5}, "group: found 5, wanted text"),
        ({"group": "a\0b"}, "group: found a NUL character"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any], problem: str) -> None:
    app: Any = App("resize", dead_letter_topic="dead")
    with pytest.raises(ConfigError, match=problem):

        @app.queue("images", **options)  # type: ignore[untyped-decorator]
        def resize(value: bytes) -> None: ...


def test_a_wrong_serde_is_named_without_what_it_holds() -> None:
    app: Any = App("resize", dead_letter_topic="dead")
    with pytest.raises(ConfigError, match="value=a dict of 1") as caught:
        app.queue("images", value={"sasl.password": "hunter2"})(lambda value: None)
    assert "hunter2" not in str(caught.value)


def test_a_queue_is_tested_offline_as_a_handler_is() -> None:
    app = App("resize", dead_letter_topic="dead")
    attempts: list[int] = []

    @app.queue("images", value=Json(dict), max_attempts=3)
    def resize(image: dict[str, int], context: Context) -> Dead | None:
        attempts.append(context.attempt)
        if image["width"] == 0:
            return Dead("no width")
        if image["width"] < 0:
            raise ValueError("negative")
        return None

    offline = consumer_for(app)
    assert offline.deliver({"width": 5}).outcome == "done"
    assert offline.deliver({"width": 0}).dead_letter is not None
    attempts.clear()
    given_up = offline.deliver({"width": -1}).dead_letter
    assert given_up is not None
    assert attempts == [1, 2, 3]


def test_a_queue_of_ones_own_refuses_what_cannot_work() -> None:
    with pytest.raises(ConfigError, match="at least one topic"):
        Queue(group="resize", bootstrap_servers="localhost:1")
    with pytest.raises(ConfigError, match="start"):
        Queue("images", group="resize", bootstrap_servers="localhost:1", start="newest")  # type: ignore[call-overload]
    bad: tuple[tuple[dict[str, Any], str], ...] = (
        ({"group": None}, "group: found None"),
        ({"group": "g", "value": 5}, "expected a serde"),
    )
    for options, wanted in bad:
        with pytest.raises(ConfigError, match=wanted):
            Queue("images", bootstrap_servers="localhost:1", **options)


def test_an_inbox_is_used_offline_and_another_object_is_refused() -> None:
    app: Any = App("resize", dead_letter_topic="dead")
    with pytest.raises(ConfigError, match="inbox: found 5, wanted Inbox"):
        app.queue("images", inbox=5)(lambda value: None)
    handled: list[bytes] = []

    @app.queue("images", inbox=Inbox(Memory()))  # type: ignore[untyped-decorator]
    def resize(value: bytes) -> None:
        handled.append(value)

    offline = consumer_for(app)
    for value in (b"a", b"again"):
        assert offline.deliver(value, headers=[("ottla-id", b"one")]).outcome == "done"
    assert handled == [b"a"]
