"""A handler may return what it sent: the record is done when that is acknowledged, and not before."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from ottla.app import App
from ottla.app.invoke import Invoker
from ottla.consumer.run import Run
from ottla.delivery import RetryPolicy
from ottla.records import Record, TopicPartition
from ottla.testing import wait_until_async


def records(count: int) -> list[Record[bytes]]:
    return [Record("orders", 0, offset, 0, None, None, [], None, b"%d" % offset) for offset in range(count)]


def run_of(app: App, count: int) -> tuple[Invoker, Run]:
    (route,) = app.routes
    run = Run(
        topic_partition=TopicPartition("orders", 0),
        epoch=1,
        route=route.name,
        records=records(count),
        attempt=1,
        started_ms=0,
    )
    return route.invoker([], {}), run


@pytest.fixture
def app() -> App:
    return App("billing", retry=RetryPolicy(max_attempts=3))


def acknowledged() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def failed(message: str) -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(ConnectionError(message))
    return future


def test_a_record_is_done_when_what_it_sent_is_acknowledged(app: App):
    sent: list[Future[None]] = []

    @app.handler("orders")
    def forward(value: bytes) -> Future[None]:
        sent.append(Future())
        return sent[-1]

    invoker, run = run_of(app, 3)

    async def scenario() -> None:
        delivering = asyncio.get_running_loop().run_in_executor(None, invoker.deliver, run)
        await wait_until_async(lambda: len(sent) == 3)
        assert run.done == 0, "nothing may be committed while nothing is acknowledged"
        assert not delivering.done()
        for future in sent:
            future.set_result(None)
        result = await delivering
        assert not result.failures
        assert not result.untouched

    asyncio.run(scenario())


def test_records_before_the_first_that_waits_count_as_done_and_none_behind_it(app: App):
    @app.handler("orders")
    def forward(value: bytes, record: Record[bytes]) -> Future[None] | None:
        assert run.done <= 2
        return acknowledged() if record.offset == 2 else None

    invoker, run = run_of(app, 5)
    result = invoker.deliver(run)
    assert run.done == 2
    assert result.done is None or len(result.done) == 5


def test_a_delivery_that_fails_is_a_failure_of_its_record_alone(app: App):
    @app.handler("orders")
    def forward(value: bytes, record: Record[bytes]) -> list[Future[None]]:
        return [acknowledged(), failed("no leader")] if record.offset == 1 else [acknowledged()]

    invoker, run = run_of(app, 3)
    result = invoker.deliver(run)
    ((record, failure),) = result.failures
    assert (record.offset, failure.error_type, failure.message) == (1, "ConnectionError", "no leader")
    assert sorted(r.offset for r in result.done or ()) == [0, 2]


def test_a_batch_handler_may_return_one_delivery_per_record(app: App):
    @app.handler("orders", batch=True)
    def forward(values: list[bytes]) -> list[Future[None]]:
        return [failed("no leader") if value == b"1" else acknowledged() for value in values]

    invoker, run = run_of(app, 3)
    result = invoker.deliver(run)
    assert [record.offset for record, _ in result.failures] == [1]
    assert [record.offset for record in result.done or ()] == [0, 2]


def test_an_async_handler_may_return_an_awaitable(app: App):
    @app.handler("orders")
    async def forward(value: bytes, record: Record[bytes]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if record.offset == 1:
            future.set_exception(ConnectionError("no leader"))
        else:
            asyncio.get_running_loop().call_soon(future.set_result, None)
        return future

    invoker, run = run_of(app, 3)

    async def breathe() -> None:
        await asyncio.sleep(0)

    result = asyncio.run(invoker.deliver_async(run, breathe))
    assert [record.offset for record, _ in result.failures] == [1]
    assert sorted(record.offset for record in result.done or ()) == [0, 2]


def test_a_coroutine_that_nobody_awaits_is_a_failure_that_says_so(app: App):
    async def later() -> None: ...

    @app.handler("orders")
    def forward(value: bytes) -> object:
        return later()

    invoker, run = run_of(app, 1)
    ((_, failure),) = invoker.deliver(run).failures
    assert "declare the handler with async def" in failure.message
