"""A handler may return what it sent: the record is done when that is acknowledged, and not before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from ottla import AsyncProducer, Json, Producer
from ottla.app import App
from ottla.app.app import declarations_of
from ottla.app.delivery.invoker import Invoker
from ottla.consumer.model.run import Run, RunResult, broken_run
from ottla.failures import NO_RETRY, Retry, RetryPolicy
from ottla.failures.exceptions import Failure
from ottla.records import Record, TopicPartition
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]


def records(count: int) -> list[Record[bytes]]:
    return [Record("orders", 0, offset, 0, None, None, [], None, b"%d" % offset) for offset in range(count)]


def run_of(app: App, count: int) -> tuple[Invoker, Run]:
    (route,) = declarations_of(app).routes
    run = Run(
        topic_partition=TopicPartition("orders", 0),
        epoch=1,
        route=route.name,
        records=records(count),
        attempt=1,
        started_ms=0,
    )
    return route.invoker([], {}), run


def result_of(delivered: Any) -> RunResult:
    """The result of a run whose promises are settled."""
    if isinstance(delivered, RunResult):
        return delivered
    results: list[RunResult] = []
    delivered.when_confirmed(results.append)
    return results[0]


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


@pytest.mark.parametrize("in_order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_a_record_is_done_when_what_it_sent_is_acknowledged(app: App, in_order: list[int]) -> None:
    sent: list[Future[None]] = []

    @app.handler("orders")
    def forward(value: bytes) -> Future[None]:
        sent.append(Future())
        return sent[-1]

    invoker, run = run_of(app, 3)
    results: list[RunResult] = []
    confirming = invoker.deliver(run)
    assert not isinstance(confirming, RunResult), "no worker waits"
    confirming.when_confirmed(results.append)
    for index in in_order:
        assert results == []
        assert run.done == 0, "nothing may be committed while nothing is acknowledged"
        sent[index].set_result(None)

    (result,) = results
    assert not result.failures
    assert not result.untouched


def test_records_before_the_first_that_waits_count_as_done_and_none_behind_it(app: App) -> None:
    @app.handler("orders")
    def forward(value: bytes, record: Record[bytes]) -> Future[None] | None:
        assert run.done <= 2
        return acknowledged() if record.offset == 2 else None

    invoker, run = run_of(app, 5)
    result = result_of(invoker.deliver(run))
    assert run.done == 2
    assert result.done is None or len(result.done) == 5


def test_a_delivery_that_fails_is_a_failure_of_its_record_alone(app: App) -> None:
    @app.handler("orders")
    def forward(value: bytes, record: Record[bytes]) -> list[Future[None]]:
        return [acknowledged(), failed("no leader")] if record.offset == 1 else [acknowledged()]

    invoker, run = run_of(app, 3)
    result = result_of(invoker.deliver(run))
    ((record, failure),) = result.failures
    assert (record.offset, failure.error_type, failure.message) == (1, "ConnectionError", "no leader")
    assert sorted(r.offset for r in result.done or ()) == [0, 2]


def test_a_record_that_fails_ends_the_run_and_those_before_it_wait_for_their_deliveries(app: App) -> None:
    sent: list[Future[None]] = []

    @app.handler("orders")
    def forward(value: bytes, record: Record[bytes]) -> Future[None]:
        if record.offset == 2:
            raise ConnectionError("busy")
        sent.append(Future())
        return sent[-1]

    invoker, run = run_of(app, 5)
    results: list[RunResult] = []
    invoker.deliver(run).when_confirmed(results.append)  # type: ignore[union-attr]
    assert (len(sent), results, run.reached) == (2, [], 3)
    for future in sent:
        future.set_result(None)

    (result,) = results
    assert [record.offset for record in result.done or ()] == [0, 1]
    assert [record.offset for record, _ in result.failures] == [2]
    assert [record.offset for record in result.untouched] == [3, 4]


def test_a_delivery_whose_error_has_no_text_ends_its_run_all_the_same(app: App) -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    late: Future[None] = Future()

    @app.handler("orders")
    def forward(value: bytes) -> Future[None]:
        return late

    invoker, run = run_of(app, 1)
    results: list[RunResult] = []
    invoker.deliver(run).when_confirmed(results.append)  # type: ignore[union-attr]
    late.set_exception(Shy())
    ((record, failure),) = results[0].failures
    assert (record.offset, failure.message) == (0, "<no text: LookupError in __str__>")


def test_a_delivery_that_is_cancelled_is_a_failure_of_its_record(app: App) -> None:
    @app.handler("orders")
    def forward(value: bytes, record: Record[bytes]) -> Future[None]:
        future: Future[None] = Future()
        if record.offset == 1:
            future.cancel()
        else:
            future.set_result(None)
        return future

    invoker, run = run_of(app, 3)
    result = result_of(invoker.deliver(run))
    ((record, failure),) = result.failures
    assert record.offset == 1
    assert failure.error_type.endswith("CancelledError")


def test_a_promise_that_cannot_call_back_is_waited_for(app: App) -> None:
    class Promise:
        def exception(self) -> BaseException | None:
            return ConnectionError("no leader")

    @app.handler("orders")
    def forward(value: bytes) -> Promise:
        return Promise()

    invoker, run = run_of(app, 2)
    result = invoker.deliver(run)
    assert isinstance(result, RunResult)
    assert [record.offset for record, _ in result.failures] == [0, 1]


def test_a_batch_handler_may_return_one_delivery_per_record(app: App) -> None:
    late: Future[None] = Future()

    @app.handler("orders", batch=True)
    def forward(values: list[bytes]) -> list[Future[None]]:
        return [failed("no leader"), late, acknowledged()]

    invoker, run = run_of(app, 3)
    results: list[RunResult] = []
    invoker.deliver(run).when_confirmed(results.append)  # type: ignore[union-attr]
    assert results == []
    late.set_result(None)

    (result,) = results
    assert [record.offset for record, _ in result.failures] == [0]
    assert [record.offset for record in result.done or ()] == [1, 2]


async def deliver_async(invoker: Invoker, run: Run) -> RunResult:
    async def breathe() -> None:
        await asyncio.sleep(0)

    delivered = await invoker.deliver_async(run, breathe)
    return delivered if isinstance(delivered, RunResult) else await delivered.wait()


def test_an_async_handler_may_return_an_awaitable(app: App) -> None:
    @app.handler("orders")
    async def forward(value: bytes, record: Record[bytes]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if record.offset == 1:
            future.set_exception(ConnectionError("no leader"))
        elif record.offset == 3:
            future.cancel()
        else:
            asyncio.get_running_loop().call_soon(future.set_result, None)
        return future

    invoker, run = run_of(app, 5)
    result = asyncio.run(deliver_async(invoker, run))
    found = [(record.offset, failure.error_type.rpartition(".")[2]) for record, failure in result.failures]
    assert found == [(1, "ConnectionError"), (3, "CancelledError")]
    assert sorted(record.offset for record in result.done or ()) == [0, 2, 4]


def test_an_async_batch_handler_may_return_awaitables(app: App) -> None:
    async def later(value: bytes) -> None:
        if value == b"1":
            raise ConnectionError("no leader")

    @app.handler("orders", batch=True)
    async def forward(values: list[bytes]) -> list[Any]:
        return [later(value) for value in values]

    invoker, run = run_of(app, 3)
    result = asyncio.run(deliver_async(invoker, run))
    assert [record.offset for record, _ in result.failures] == [1]
    assert [record.offset for record in result.done or ()] == [0, 2]


def test_a_coroutine_that_nobody_awaits_is_a_failure_that_says_so(app: App) -> None:
    async def later() -> None: ...

    @app.handler("orders")
    def forward(value: bytes) -> object:
        return later()

    invoker, run = run_of(app, 1)
    ((_, failure),) = result_of(invoker.deliver(run)).failures
    assert "declare the handler with async def" in failure.message


class TestThroughClients:
    """Both kinds of handlers, in all shells: no worker waits for an acknowledgement, and no commit passes one."""

    @pytest.fixture(params=["def", "async def"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def declare(self, app: App, topic: str, kind: str, handle: Callable[[Record[bytes]], Any], **options: Any) -> None:
        if kind == "def":
            app.handler(topic, **options)(lambda record: handle(record))
            return

        async def forward(record: Record[bytes]) -> Any:
            returned = handle(record)
            return asyncio.wrap_future(returned) if isinstance(returned, Future) else returned

        app.handler(topic, **options)(forward)

    @pytest.mark.representative("columns-def")
    def test_one_worker_handles_other_partitions_while_one_waits_for_its_acknowledgements(
        self, kind: str, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
    ) -> None:
        topic = make_topic("orders", partitions=2)
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
        sent: list[Future[None]] = []
        handled: list[tuple[int, int]] = []

        def handle(record: Record[bytes]) -> Any:
            future: Future[None] | None = None
            if record.partition == 0:
                future = Future()
                sent.append(future)
            handled.append((record.partition, record.offset))
            return future

        self.declare(app, topic, kind, handle, concurrency=1)
        kafka.produce(topic, [b"a", b"b"], partition=0)
        shell.start(app)
        wait(lambda: len(sent) == 2)
        kafka.produce(topic, [b"c", b"d"], partition=1)
        kafka.produce(topic, [b"e"], partition=0)
        wait(lambda: (1, 1) in handled, timeout_s=30)
        wait(lambda: committed(kafka_group, topic, 1) == 2, timeout_s=30)

        assert (0, 2) not in handled, "a partition waits for its own"
        assert committed(kafka_group, topic, 0) <= 0
        assert app.health().is_alive

        for future in list(sent):
            future.set_result(None)
        wait(lambda: (0, 2) in handled)
        sent[-1].set_result(None)
        wait(lambda: committed(kafka_group, topic, 0) == 3, timeout_s=30)

    def test_a_stop_waits_for_the_acknowledgements_and_commits_what_they_finish(
        self, kind: str, shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
    ) -> None:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, drain_s=30)
        sent: list[Future[None]] = []

        def handle(record: Record[bytes]) -> Any:
            sent.append(Future())
            return sent[-1]

        self.declare(app, kafka_topic, kind, handle)
        kafka.produce(kafka_topic, [b"a", b"b"])
        shell.start(app)
        wait(lambda: len(sent) == 2)
        app.stop()
        settling = threading.Timer(0.2, lambda: [future.set_result(None) for future in sent])
        settling.start()
        shell.stop(app, timeout_s=60)
        settling.join()

        assert committed(kafka_group, kafka_topic) == 2

    @pytest.mark.representative("threads-async def")
    def test_what_was_not_acknowledged_is_delivered_again_to_the_next_owner(
        self, kind: str, shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
    ) -> None:
        def service() -> tuple[App, list[int], list[Future[None]]]:
            app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, drain_s=0.1)
            handled: list[int] = []
            sent: list[Future[None]] = []

            def handle(record: Record[bytes]) -> Any:
                future: Future[None] = Future()
                if record.offset < 2:
                    future.set_result(None)
                sent.append(future)
                handled.append(record.offset)
                return future

            self.declare(app, kafka_topic, kind, handle)
            return app, handled, sent

        kafka.produce(kafka_topic, [b"a", b"b", b"c", b"d"])
        first, handled, _ = service()
        shell.start(first)
        wait(lambda: handled == [0, 1, 2, 3])
        shell.stop(first)
        assert committed(kafka_group, kafka_topic) <= 2

        second, again, sent = service()
        shell.start(second)
        wait(lambda: 3 in again)
        for future in sent:
            if not future.done():
                future.set_result(None)
        wait(lambda: committed(kafka_group, kafka_topic) == 4, timeout_s=30)
        assert again[-2:] == [2, 3]

    def test_many_records_sent_with_one_call_are_one_promise(self, shell: Any, make_cluster: Any, wait: Any) -> None:
        servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"}).bootstrap_servers
        for topic in ("orders", "parts"):
            create_topic(servers, topic)
        with Producer(servers) as producer:
            producer.send_many("orders", [(b"a",), (b"b",), (b"c",), (b"d",)])
        app = App("bulk", bootstrap_servers=servers, retry=NO_RETRY)

        def parts(record: Record[bytes]) -> tuple[str, list[tuple[bytes]]]:
            return "parts" if record.offset < 2 else "nowhere", [(b"1",), (b"2",)]

        soon = {"topic.metadata.propagation.max.ms": 300}
        if shell.name != "asyncio":
            sender = Producer(servers, settings=soon)
            app.handler("orders")(lambda record: sender.send_many(*parts(record)))
            app.on_stop(sender.close)
        else:
            loop_sender = AsyncProducer(servers, settings=soon)

            async def forward(record: Record[bytes]) -> Any:
                return await loop_sender.send_many(*parts(record))

            app.handler("orders")(forward)
            app.on_start(loop_sender.start)
            app.on_stop(loop_sender.close)
        shell.start(app)
        wait(lambda: any("stopped" in problem for problem in app.health().problems), timeout_s=60)

        (problem,) = app.health().problems
        assert "stopped at offset 2" in problem
        assert "nowhere" in problem
        shell.stop(app)


class Panic(BaseException):
    """As extensions in Rust raise it (PyO3's PanicException): no Exception."""


@pytest.mark.representative("asyncio-True")
@pytest.mark.parametrize("batch", [False, True])
def test_a_promise_that_fails_with_no_exception_is_the_failure_of_its_record(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any, batch: bool
) -> None:
    topic, dead_letters = make_topic("orders"), make_topic("dead")
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead_letters,
        retry=RetryPolicy(max_attempts=2, initial_s=0),
    )

    def promise(value: int) -> Future[None]:
        if value != 1:
            return acknowledged()
        future: Future[None] = Future()
        future.set_exception(Panic("index out of bounds"))
        return future

    def answer(given: Any, wrap: Callable[[Future[None]], Any]) -> Any:
        return [wrap(promise(value)) for value in given] if batch else wrap(promise(given))

    if shell.name == "asyncio":

        @app.handler(topic, value=Json(), batch=batch)
        async def forward_async(given: Any) -> Any:
            return answer(given, asyncio.wrap_future)
    else:

        @app.handler(topic, value=Json(), batch=batch)
        def forward(given: Any) -> Any:
            return answer(given, lambda future: future)

    kafka.produce(topic, [0, 1, 2], value=Json())
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 3)

    [letter] = kafka.consume_all(dead_letters)
    assert dict(letter.headers)["ottla-dlq-error-message"] == b"index out of bounds"
    assert app.health().is_ready


def test_an_error_behind_the_last_record_of_a_run_is_the_failure_of_that_record(app: App) -> None:
    app.handler("orders")(lambda value: None)
    _, run = run_of(app, 3)
    run.done = 3

    result = broken_run(run, Failure.of_outcome(Retry()))

    assert [record.offset for record, _ in result.failures] == [2]
    assert result.done is not None
    assert [record.offset for record in result.done] == [0, 1]
    assert not result.untouched
