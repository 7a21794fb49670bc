"""`Provide(scope="run")`: opened once for the records of a run, which are done when it has closed without an error."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest
from structlog.testing import capture_logs

from ottla import (
    App,
    AtMostOnce,
    ConfigError,
    Dead,
    ExactlyOnce,
    Int64,
    Outcome,
    Producer,
    Provide,
    RetryPolicy,
    TagHeader,
    TopicPartition,
)
from ottla.app.app import declarations_of
from ottla.consumer.model.run import Run
from ottla.failures import Retry
from ottla.testing import consumer_for, make_record


class Database:
    """Keeps what sessions commit, and notes how each of them ended."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.log: list[str] = []
        self.refuses: Callable[[list[int]], bool] = lambda rows: False
        """Whether a commit of these rows fails, as a constraint that is checked at the end does."""
        self.is_down_for = 0
        self.closes_badly = False

    @contextmanager
    def session(self) -> Iterator[list[int]]:
        if self.is_down_for:
            self.is_down_for -= 1
            raise ConnectionRefusedError("the database is down")
        added: list[int] = []
        self.log.append("open")
        try:
            yield added
        except BaseException as error:
            self.log.append(f"roll back for {type(error).__name__}")
            if self.closes_badly:
                raise OSError("the connection is gone") from None
            raise
        if self.refuses(added):
            self.log.append("refuse")
            raise ValueError("a row breaks a constraint")
        self.rows += added
        self.log.append(f"commit {len(added)}")

    @asynccontextmanager
    async def session_async(self) -> AsyncIterator[list[int]]:
        with self.session() as added:
            await asyncio.sleep(0)
            yield added


Answer = Callable[[int], Outcome | None]


def app_of(database: Database, answer: Answer, *, is_async: bool, **options: Any) -> tuple[App, list[int]]:
    """Return an app whose handler adds each number to the session of its run, and the numbers of all its calls."""
    app = App("billing", dead_letter_topic="dead", retry=RetryPolicy(initial_s=0.01, jitter=0, max_attempts=2))
    calls: list[int] = []

    def handle(number: int, session: Any) -> Outcome | None:
        calls.append(number)
        session.append(number)
        return answer(number)

    async def handle_async(number: int, session: Any) -> Outcome | None:
        await asyncio.sleep(0)
        return handle(number, session)

    handler, opener = (handle_async, database.session_async) if is_async else (handle, database.session)
    handler.__annotations__["session"] = Annotated[Any, Provide(opener, scope="run")]
    app.handler("orders", value=Int64(), **options)(handler)
    return app, calls


@pytest.fixture
def database() -> Database:
    return Database()


both = pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])


@both
def test_the_records_of_a_run_share_one_that_is_committed_in_the_end(database: Database, is_async: bool) -> None:
    app, calls = app_of(database, lambda number: None, is_async=is_async)
    deliveries = consumer_for(app).deliver_all(range(5))
    assert [each.outcome for each in deliveries] == ["done"] * 5
    assert (calls, database.rows) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert database.log == ["open", "commit 5"]


def _raise(error: Exception) -> None:
    raise error


BAD: dict[str, tuple[Answer, str, int]] = {
    "raises": (lambda number: _raise(KeyError("no such customer")) if number == 2 else None, "KeyError", 2),
    "retry": (lambda number: Retry() if number == 2 else None, "Unsettled", 2),
    "dead": (lambda number: Dead("bad") if number == 2 else None, "Unsettled", 1),
}


@both
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("bad", BAD)
def test_a_failure_rolls_all_of_the_run_back_and_leaves_out_that_record_alone(
    database: Database, is_async: bool, ordering: str, bad: str
) -> None:
    answer, reason, attempts = BAD[bad]
    app, _ = app_of(database, answer, is_async=is_async, ordering=ordering)
    deliveries = consumer_for(app).deliver_all(range(5), keys=[b"a", b"b", b"a", b"b", b"c"])
    assert [each.outcome for each in deliveries] == ["done", "done", "dead", "done", "done"]
    assert deliveries[2].attempts == attempts
    assert sorted(database.rows) == [0, 1, 3, 4], "each once, and nothing of the record that failed"
    assert database.log[:2] == ["open", f"roll back for {reason}"]
    if ordering == "partition":
        assert database.rows == [0, 1, 3, 4]


@both
def test_a_value_that_cannot_be_decoded_is_a_failure_of_its_record_alone(database: Database, is_async: bool) -> None:
    app, _ = app_of(database, lambda number: None, is_async=is_async)
    deliveries = consumer_for(app).deliver_all([0, b"no number", 2])
    assert [each.outcome for each in deliveries] == ["done", "dead", "done"]
    assert sorted(database.rows) == [0, 2]


@both
def test_a_commit_that_is_refused_blames_the_record_that_is_refused_alone(database: Database, is_async: bool) -> None:
    database.refuses = lambda rows: 3 in rows
    app, _ = app_of(database, lambda number: None, is_async=is_async)
    deliveries = consumer_for(app).deliver_all(range(5))
    assert [each.outcome for each in deliveries] == ["done", "done", "done", "dead", "done"]
    assert "a row breaks a constraint" in str(deliveries[3].reason)
    assert database.rows == [0, 1, 2, 4]


@both
def test_one_that_does_not_open_is_an_outage_for_the_whole_run(database: Database, is_async: bool) -> None:
    database.is_down_for = 5
    app, calls = app_of(database, lambda number: None, is_async=is_async)
    consumer = consumer_for(app)
    deliveries = consumer.deliver_all(range(3))
    assert [each.outcome for each in deliveries] == ["done"] * 3, "more outages than attempts"
    assert (calls, database.rows, consumer.dead_letters) == ([0, 1, 2], [0, 1, 2], [])


@both
def test_one_that_does_not_close_after_a_failure_is_logged_and_loses_nothing(
    database: Database, is_async: bool
) -> None:
    database.closes_badly = True
    errors: list[Exception | None] = [None, KeyError("once"), *[None] * 9]
    app, _ = app_of(database, lambda number: _raise(error) if (error := errors.pop(0)) else None, is_async=is_async)
    with capture_logs() as logged:
        assert [each.outcome for each in consumer_for(app).deliver_all(range(3))] == ["done"] * 3
    assert database.rows == [0, 1, 2]
    (entry,) = [each for each in logged if each["event"] == "resource_close_failed"]
    assert "OSError: the connection is gone" in entry["error"]


def run_of(app: App, count: int) -> tuple[Any, Run]:
    (route,) = declarations_of(app).routes
    records = [make_record(value, offset=offset) for offset, value in enumerate([bytes(7) + b"\1"] * count)]
    run = Run(
        topic_partition=TopicPartition("orders", 0), epoch=1, route=route.name, records=records, attempt=1, started_ms=0
    )
    run.is_first = True
    return route.invoker([], {}), run


@both
def test_no_record_is_done_before_it_is_committed(database: Database, is_async: bool) -> None:
    done: list[int] = []
    app, _ = app_of(database, lambda number: done.append(run.done), is_async=is_async)
    invoker, run = run_of(app, 3)
    result = asyncio.run(invoker.deliver_async(run, lambda: asyncio.sleep(0))) if is_async else invoker.deliver(run)
    assert (done, run.done) == ([0, 0, 0], 3)
    assert (result.done, result.failures, database.log) == (None, (), ["open", "commit 3"])


def test_a_run_that_is_cancelled_is_rolled_back(database: Database) -> None:
    """As at the stop of an app whose drain takes too long."""
    app = App("billing")
    begun = asyncio.Event()

    @app.handler("orders", value=Int64())
    async def handle(number: int, session: Annotated[Any, Provide(database.session_async, scope="run")]) -> None:
        session.append(number)
        begun.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        invoker, run = run_of(app, 2)
        delivering = asyncio.create_task(invoker.deliver_async(run, lambda: asyncio.sleep(0)))
        await begun.wait()
        delivering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivering

    asyncio.run(scenario())
    assert (database.rows, database.log) == ([], ["open", "roll back for CancelledError"])


def test_a_thread_whose_handler_exits_rolls_back(database: Database) -> None:
    app, _ = app_of(database, lambda number: _raise(SystemExit()), is_async=False)  # type: ignore[arg-type]
    invoker, run = run_of(app, 2)
    with pytest.raises(SystemExit):
        invoker.deliver(run)
    assert (database.rows, database.log) == ([], ["open", "roll back for SystemExit"])


def test_it_stands_beside_those_of_the_call_and_of_the_app(database: Database) -> None:
    app, calls, pool = App("billing"), Database(), Database()

    @app.handler("orders", value=Int64())
    def handle(
        number: int,
        session: Annotated[Any, Provide(database.session, scope="run")],
        again: Annotated[Any, Provide(database.session, scope="run")],
        own: Annotated[Any, Provide(calls.session)],
        shared: Annotated[Any, Provide(pool.session, scope="app")],
    ) -> None:
        assert session is again
        for each in (session, own, shared):
            each.append(number)

    consumer_for(app).deliver_all(range(3))
    assert database.log == ["open", "commit 3"]
    assert calls.log == ["open", "commit 1"] * 3
    assert pool.log == ["open"]


def test_handlers_of_event_types_share_it(database: Database) -> None:
    app = App("billing", dead_letter_topic="dead")
    orders = app.topic("orders", by=TagHeader("type"))
    Session = Annotated[Any, Provide(database.session, scope="run")]

    @orders.on("a", value=Int64())
    def on_a(number: int, session: Session) -> None:
        session.append(number)

    @orders.on("b", value=Int64())
    def on_b(number: int, session: Session) -> None:
        session.append(-number)

    invoker, run = run_of(app, 4)
    for record in run.records:
        record.headers = [("type", b"b" if record.offset % 2 else b"a")]
    invoker.deliver(run)
    assert (database.rows, database.log) == ([1, -1, 1, -1], ["open", "commit 4"])


def test_a_batch_is_a_run(database: Database) -> None:
    app = App("billing", dead_letter_topic="dead", retry=RetryPolicy(initial_s=0.01, max_attempts=2))

    @app.handler("orders", value=Int64(), batch=True)
    def handle(numbers: list[int], session: Annotated[Any, Provide(database.session, scope="run")]) -> None:
        session += numbers
        if 2 in numbers:
            raise KeyError("bad")

    deliveries = consumer_for(app).deliver_all(range(4))
    assert [each.outcome for each in deliveries] == ["done", "done", "dead", "done"]
    assert sorted(database.rows) == [0, 1, 3]
    assert database.log[:2] == ["open", "roll back for KeyError"]


@pytest.mark.parametrize(
    ("of_app", "of_handler", "says"),
    [
        ({"commit": AtMostOnce()}, {}, "AtMostOnce"),
        ({}, {"exactly_once": ExactlyOnce()}, "exactly_once="),
    ],
)
def test_what_it_cannot_go_with_is_refused(
    database: Database, of_app: dict[str, Any], of_handler: dict[str, Any], says: str
) -> None:
    def handle(number: int, session: Any) -> None: ...

    handle.__annotations__["session"] = Annotated[Any, Provide(database.session, scope="run")]
    with pytest.raises(ConfigError, match=rf"{says}.*wanted scope='call'"):
        App("billing", **of_app).handler("orders", value=Int64(), **of_handler)(handle)


def test_runs_through_the_clients_lose_and_double_nothing(
    shell: Any, kafka: Any, make_topic: Callable[..., str], kafka_group: str, wait: Any, committed: Any
) -> None:
    topic, dead = make_topic("orders"), make_topic("dead")
    database = Database()
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead,
        retry=RetryPolicy(initial_s=0.01, max_attempts=2),
    )
    invoices = app.async_producer(value=Int64()) if shell.name == "asyncio" else app.producer(value=Int64())
    if shell.name == "asyncio":

        @app.handler(topic, value=Int64())
        async def handle_async(
            number: int, session: Annotated[Any, Provide(database.session_async, scope="run")]
        ) -> Any:
            session.append(number)
            if number == 100:
                raise KeyError("bad")
            return invoices.send(topic_of_invoices, number)
    else:

        @app.handler(topic, value=Int64())
        def handle(number: int, session: Annotated[Any, Provide(database.session, scope="run")]) -> Any:
            session.append(number)
            if number == 100:
                raise KeyError("bad")
            return invoices.send(topic_of_invoices, number)

    topic_of_invoices = make_topic("invoices")
    with Producer(kafka.bootstrap_servers, value=Int64()) as producer:
        producer.send_many(topic, [(number,) for number in range(300)])
    shell.start(app)
    wait(lambda: len(database.rows) == 299)
    shell.stop(app)
    assert database.rows == [number for number in range(300) if number != 100]
    assert committed(kafka_group, topic) == 300
    assert database.log.count("open") < 299, "runs, and single records of the one that failed"
    assert [record.value for record in kafka.consume_all(dead, value=Int64(), at_least=1)] == [100]
