"""What a handler raises that is no `Exception`: one behaviour in both shells, for plain and for async handlers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, CommitPolicy, Json, RetryPolicy, Skip
from ottla.telemetry import Counters

SHELLS = ["threads", "asyncio", "columns"]


@pytest.fixture(params=["plain", "async"])
def declare(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Declares a function as a plain handler, or as an async one."""

    def declare(app: App, topic: str, work: Callable[[int], Any], **options: Any) -> None:
        async def on_loop(value: int) -> Any:
            await asyncio.sleep(0)
            return work(value)

        def plain(value: int) -> Any:
            return work(value)

        app.handler(topic, value=Json(), name="handle", **options)(plain if request.param == "plain" else on_loop)

    return declare


@pytest.fixture
def app(kafka: Any, kafka_group: str) -> App:
    return App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        retry=RetryPolicy(max_attempts=3, initial_s=0.01, max_s=0.05),
        commit=CommitPolicy(every_s=0.05),
        hooks=Counters(),
    )


def test_what_a_handler_waits_for_may_be_cancelled(
    app: App, declare: Any, shell: Any, kafka: Any, kafka_topic: str, committed: Any, wait: Any
) -> None:
    calls: list[int] = []

    def work(value: int) -> None:
        calls.append(value)
        if value == 2 and calls.count(2) == 1:
            raise asyncio.CancelledError

    kafka.produce(kafka_topic, [1, 2, 3], value=Json())
    declare(app, kafka_topic, work)
    shell.start(app)
    wait(lambda: committed(app.group, kafka_topic) == 3)

    assert calls == [1, 2, 2, 3]
    assert app.health().is_alive
    assert app.health().is_ready


def test_the_exception_table_decides_about_a_cancelled_error(
    app: App, declare: Any, shell: Any, kafka: Any, kafka_topic: str, committed: Any, wait: Any
) -> None:
    def work(value: int) -> None:
        if value == 2:
            raise asyncio.CancelledError

    kafka.produce(kafka_topic, [1, 2, 3], value=Json())
    declare(app, kafka_topic, work, on_error={asyncio.CancelledError: Skip("cancelled")})
    shell.start(app)
    wait(lambda: committed(app.group, kafka_topic) == 3)

    assert app.hooks["skipped"] == 1  # type: ignore[index]
    assert app.hooks["record_retried"] == 0  # type: ignore[index]


def test_an_exit_in_a_handler_ends_the_app_which_drains_and_commits_first(
    app: App, declare: Any, shell: Any, kafka: Any, make_topic: Any, committed: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    stopped: list[str] = []

    @app.on_stop
    async def close() -> None:
        await asyncio.sleep(0)  # on the loop of the async handlers, which the exit must not have ended
        stopped.append("closed")

    def work(value: int) -> None:
        if value == 2:
            sys.exit(3)

    kafka.produce(topic, [1, 2, 3], partition=0, value=Json())
    declare(app, topic, work)
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, SystemExit)
    assert error.code == 3
    assert stopped == ["closed"]
    assert committed(app.group, topic, 0) == 1, "the record at which it ended comes again"


def test_an_exit_that_the_exception_table_names_is_a_failure_of_its_record(
    app: App, declare: Any, shell: Any, kafka: Any, kafka_topic: str, committed: Any, wait: Any
) -> None:
    def work(value: int) -> None:
        if value == 2:
            sys.exit("a library's command line")

    kafka.produce(kafka_topic, [1, 2, 3], value=Json())
    declare(app, kafka_topic, work, on_error={SystemExit: Skip("it exits")})
    shell.start(app)
    wait(lambda: committed(app.group, kafka_topic) == 3)

    assert app.health().is_ready


class TestStopHooks:
    def test_one_that_raises_does_not_keep_the_others_from_their_work(
        self, app: App, shell: Any, kafka: Any, kafka_topic: str, wait: Any
    ) -> None:
        called: list[str] = []
        app.handler(kafka_topic, value=Json())(lambda value: None)

        @app.on_stop
        def close_database() -> None:
            called.append("database")
            raise ConnectionError("gone already")

        @app.on_stop
        async def close_cache() -> None:
            called.append("cache")
            raise asyncio.CancelledError

        @app.on_stop
        def close_file() -> None:
            called.append("file")

        shell.start(app)
        wait(lambda: bool(app.health().partitions))
        with pytest.raises(ConnectionError, match="gone already"):
            shell.stop(app)

        assert called == ["database", "cache", "file"]
