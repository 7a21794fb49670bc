"""An app beside a test fails the test with what went wrong in it, in threads and on the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest

from ottla import NO_RETRY, App, Dead, RetryPolicy
from ottla.app.app import declarations_of
from ottla.telemetry import Counters
from ottla.testing import AppFailed, Kafka, RunningApp, ServedApp, wait_until_async

Beside: TypeAlias = Callable[..., contextlib.AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["threads", "asyncio"])
def beside(request: pytest.FixtureRequest, kafka: Kafka) -> Beside:
    """Runs an app beside the block, by either shell."""

    @contextlib.asynccontextmanager
    async def run(app: App, **options: Any) -> AsyncIterator[Any]:
        if request.param == "threads":
            with RunningApp(app, kafka.bootstrap_servers, **options) as running:
                yield running
        else:
            async with ServedApp(app, kafka.bootstrap_servers, **options) as served:
                yield served

    return run


def app_of(kafka: Kafka, topic: str, handle: Callable[[bytes], Any], **options: Any) -> App:
    app = App(kafka.fresh_name("group"), **options)

    @app.handler(topic)
    def on_value(value: bytes) -> Any:
        return handle(value)

    return app


def check(value: bytes) -> None:
    assert value == b"wanted"


async def unwatched(condition: Callable[[], object]) -> None:
    """Wait as a test does that knows nothing of `wait_until`."""
    while not condition():  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.01)


async def stopped(app: App) -> bool:
    await wait_until_async(lambda: any(part.stopped for part in app.health().partitions), what="a stopped partition")
    return True


async def test_an_assertion_that_fails_in_a_handler_fails_the_test_while_it_waits(
    kafka: Kafka, kafka_topic: str, beside: Beside
) -> None:
    kafka.produce(kafka_topic, [b"other"])

    async with beside(app_of(kafka, kafka_topic, check)):
        with pytest.raises(AssertionError, match=r"b'other' == b'wanted'"):
            await wait_until_async(lambda: False, what="nothing")


async def test_it_fails_the_test_in_the_end_if_nothing_waited(kafka: Kafka, kafka_topic: str, beside: Beside) -> None:
    kafka.produce(kafka_topic, [b"other"])
    app = app_of(kafka, kafka_topic, check, retry=NO_RETRY)

    with pytest.raises(AssertionError, match=r"b'other' == b'wanted'"):
        async with beside(app):
            await unwatched(lambda: any(part.stopped for part in app.health().partitions))


async def test_a_dead_letter_does_not_hide_an_assertion(
    kafka: Kafka, kafka_topic: str, make_topic: Callable[..., str], beside: Beside
) -> None:
    kafka.produce(kafka_topic, [b"other"])
    counters = Counters()
    app = app_of(kafka, kafka_topic, check, retry=NO_RETRY, dead_letter_topic=make_topic("dead"), hooks=counters)

    with pytest.raises(AssertionError, match=r"b'other' == b'wanted'"):
        async with beside(app):
            await unwatched(lambda: counters["record_dead_lettered"])


async def test_a_stopped_partition_fails_the_test_and_says_why(kafka: Kafka, kafka_topic: str, beside: Beside) -> None:
    kafka.produce(kafka_topic, [b"first"])
    app = app_of(kafka, kafka_topic, lambda value: 1 / 0, retry=NO_RETRY)

    with pytest.raises(AppFailed, match=rf"{kafka_topic}-0 stopped at offset 0: .*ZeroDivisionError"):
        async with beside(app):
            assert await stopped(app)


async def test_a_stopped_partition_is_seen_when_the_test_stops_the_app_itself(
    kafka: Kafka, kafka_topic: str, beside: Beside
) -> None:
    kafka.produce(kafka_topic, [b"first"])
    app = app_of(kafka, kafka_topic, lambda value: 1 / 0, retry=NO_RETRY)

    async def run() -> None:
        async with beside(app) as running:
            assert await stopped(app)
            app.stop()
            await wait_until_async(lambda: not running.is_running, what="the end")

    with pytest.raises(AppFailed, match="a partition stopped before the app ended"):
        await run()


async def test_a_worker_that_died_fails_the_test(kafka: Kafka, kafka_topic: str, beside: Beside) -> None:
    class Deadly(BaseException):
        """What no handler raises: the worker ends with it."""

    def die(value: bytes) -> None:
        raise Deadly

    kafka.produce(kafka_topic, [b"first"])
    app = app_of(kafka, kafka_topic, die)

    with pytest.raises(AppFailed, match=r"a worker died: .*Deadly"):
        async with beside(app):
            await wait_until_async(lambda: "worker died" in str(app.health().problems), what="a dead worker")


async def test_a_test_that_wants_a_stopped_partition_says_so(kafka: Kafka, kafka_topic: str, beside: Beside) -> None:
    kafka.produce(kafka_topic, [b"first"])
    app = app_of(kafka, kafka_topic, lambda value: 1 / 0, retry=NO_RETRY)

    async with beside(app, is_watched=False):
        assert await stopped(app)


async def test_other_exceptions_are_the_apps_own_business(kafka: Kafka, kafka_topic: str, beside: Beside) -> None:
    answers: list[Any] = [ConnectionError("away"), Dead("refused")]

    def answer(value: bytes) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    counters = Counters()
    app = app_of(
        kafka,
        kafka_topic,
        answer,
        hooks=counters,
        retry=RetryPolicy(initial_s=0.01),
        dead_letter_topic=kafka.create_topic(kafka.fresh_name("dead")),
    )
    kafka.produce(kafka_topic, [b"first"])

    async with beside(app):
        await wait_until_async(lambda: counters["record_dead_lettered"] == 1, what="a dead letter")

    assert counters["failed"] > 0
    assert app.hooks is counters
    assert declarations_of(app).all_middlewares == ()


async def test_async_handlers_are_watched_too(kafka: Kafka, kafka_topic: str, beside: Beside) -> None:
    kafka.produce(kafka_topic, [b"other"])
    app = App(kafka.fresh_name("group"))

    @app.handler(kafka_topic)
    async def on_value(value: bytes) -> None:
        check(value)

    async with beside(app):
        with pytest.raises(AssertionError, match=r"b'other' == b'wanted'"):
            await wait_until_async(lambda: False, what="nothing")


async def test_a_failed_start_is_raised_in_the_end(kafka: Kafka, beside: Beside) -> None:
    from ottla import ConfigError

    with pytest.raises(ConfigError, match="no handlers"):
        async with beside(App("nothing-to-do")) as running:
            await wait_until_async(lambda: not running.is_running)
