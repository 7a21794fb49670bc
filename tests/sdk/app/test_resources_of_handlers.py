"""`Provide`: resources of handlers are opened, shared, overridden and closed with the outcome known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, ClassVar

import pytest

from ottla import App, ConfigError, Dead, Int64, Outcome, Producer, Provide, RetryPolicy, Skip, TagHeader
from ottla.app.app import declarations_of
from ottla.failures import Retry
from ottla.testing import consumer_for, make_record


class Session:
    """A session that notes what becomes of it."""

    log: ClassVar[list[str]] = []
    opened = 0

    def __init__(self) -> None:
        Session.opened += 1
        self.number = Session.opened
        Session.log.append(f"open {self.number}")

    def end(self, error: BaseException | None) -> None:
        Session.log.append(f"{'commit' if error is None else 'roll back'} {self.number}")


@pytest.fixture(autouse=True)
def forgotten() -> None:
    Session.log, Session.opened = [], 0


@contextmanager
def open_session() -> Iterator[Session]:
    session = Session()
    try:
        yield session
    except BaseException as error:
        session.end(error)
        raise
    session.end(None)


@asynccontextmanager
async def open_async() -> AsyncIterator[Session]:
    session = Session()
    await asyncio.sleep(0)
    try:
        yield session
    except BaseException as error:
        session.end(error)
        raise
    session.end(None)


def open_plainly() -> Iterator[Session]:
    yield Session()
    Session.log.append("closed")


class Refusing:
    """A database that is down until it is not."""

    failures = 3
    calls = 0


@contextmanager
def open_refusing() -> Iterator[int]:
    Refusing.calls += 1
    if Refusing.calls <= Refusing.failures:
        raise ConnectionRefusedError("the database is down")
    yield Refusing.calls


OfCall = Annotated[Session, Provide(open_session)]
OfApp = Annotated[Session, Provide(open_session, scope="app")]
OfAsyncCall = Annotated[Session, Provide(open_async)]
OfAsyncApp = Annotated[Session, Provide(open_async, scope="app")]
Down = Annotated[int, Provide(open_refusing)]


def app_of(**options: Any) -> App:
    retry = RetryPolicy(initial_s=0.01, jitter=0, max_attempts=2)
    return App("billing", dead_letter_topic="dead", retry=retry, **options)


OUTCOMES: list[tuple[Any, list[str], str]] = [
    (None, ["commit 1"], "done"),
    (Skip(), ["commit 1"], "skipped"),
    (Dead("bad"), ["roll back 1"], "dead"),
    (Retry(), ["roll back 1", "open 2", "roll back 2"], "dead"),
    (ValueError("raised"), ["roll back 1", "open 2", "roll back 2"], "dead"),
]


@pytest.mark.parametrize(("answer", "closed", "outcome"), OUTCOMES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_resource_is_closed_as_the_record_ends(is_async: bool, answer: Any, closed: list[str], outcome: str) -> None:
    app = app_of()

    def answered() -> Outcome | None:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def handle(number: int, session: OfCall) -> Outcome | None:
        Session.log.append(f"use {session.number}")
        return answered()

    async def handle_async(number: int, session: OfAsyncCall) -> Outcome | None:
        Session.log.append(f"use {session.number}")
        return answered()

    app.handler("orders", value=Int64())(handle_async if is_async else handle)
    assert consumer_for(app).deliver(1).outcome == outcome
    assert [entry for entry in Session.log if not entry.startswith("use")] == ["open 1", *closed]
    assert Session.log.index("use 1") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_resource_that_does_not_open_is_an_outage(is_async: bool) -> None:
    Refusing.calls = 0
    app, seen = app_of(), list[int]()

    def handle(number: int, opened: Down) -> None:
        seen.append(opened)

    async def handle_async(number: int, opened: Down) -> None:
        seen.append(opened)

    app.handler("orders", value=Int64())(handle_async if is_async else handle)
    consumer = consumer_for(app)
    delivery = consumer.deliver(1)
    assert (delivery.outcome, seen, consumer.dead_letters) == ("done", [4], []), "more failures than attempts"
    (noted, *_) = [notice for notice in consumer.notices if notice.event == "record_retried"]
    assert "open_refusing: ConnectionRefusedError: the database is down" in str(noted.fields["error"])


def test_what_cannot_be_committed_is_delivered_again() -> None:
    app, commits = app_of(), list[int]()

    @contextmanager
    def open_failing() -> Iterator[None]:
        yield
        commits.append(1)
        if len(commits) == 1:
            raise ConnectionError("the commit was lost")

    def handle(number: int, session: Any) -> None: ...

    handle.__annotations__["session"] = Annotated[None, Provide(open_failing)]
    app.handler("orders", value=Int64())(handle)
    delivery = consumer_for(app).deliver(1)
    assert (delivery.outcome, delivery.attempts) == ("done", 2)


def test_two_parameters_share_what_is_opened_and_generators_do() -> None:
    app, seen = app_of(), list[Any]()
    shared = Provide(open_plainly)

    def handle(number: int, one: Any, other: Any, *, third: Any = None) -> None:
        seen.append(one is other is third)

    handle.__annotations__.update(dict.fromkeys(("one", "other", "third"), Annotated[Session, shared]))
    app.handler("orders", value=Int64())(handle)
    consumer_for(app).deliver_all([1, 2])
    assert seen == [True, True]
    assert Session.log == ["open 1", "closed", "open 2", "closed"]


def test_a_batch_has_one_per_call() -> None:
    app, seen = app_of(), list[Any]()

    @app.handler("orders", value=Int64(), batch=True)
    def handle(numbers: list[int], session: OfCall) -> None:
        seen.append((numbers, session.number))

    consumer_for(app).deliver_all([1, 2, 3])
    assert seen == [([1, 2, 3], 1)]
    assert Session.log == ["open 1", "commit 1"]


def test_a_type_of_events_has_its_own() -> None:
    app = app_of()
    orders = app.topic("orders", by=TagHeader("type"))

    @orders.on("a", value=Int64())
    def on_a(number: int, session: OfCall) -> None: ...

    @orders.on("b", value=Int64())
    def on_b(number: int) -> None: ...

    consumer = consumer_for(app)
    consumer.deliver(b"\0" * 8, headers=[("type", b"a")])
    consumer.deliver(b"\0" * 8, headers=[("type", b"b")])
    assert Session.log == ["open 1", "commit 1"]


@pytest.mark.parametrize("is_async", [False, True])
def test_tests_open_something_else(is_async: bool) -> None:
    app, seen = app_of(), list[Any]()

    def handle(number: int, session: OfCall) -> None:
        seen.append(session)

    async def handle_async(number: int, session: OfAsyncCall) -> None:
        seen.append(session)

    @contextmanager
    def open_fake() -> Iterator[str]:
        yield "fake"

    app.handler("orders", value=Int64())(handle_async if is_async else handle)
    consumer = consumer_for(app)
    with app.override({open_session: open_fake, open_async: open_fake}):
        consumer.deliver(1)
    consumer.deliver(2)
    assert seen[0] == "fake"
    assert isinstance(seen[1], Session)


def test_one_of_the_app_is_opened_once_by_many_threads_and_closed_in_the_end() -> None:
    app = app_of()

    @app.handler("orders", value=Int64(), ordering="unordered", concurrency=8)
    def handle(number: int, session: OfApp) -> None: ...

    route = declarations_of(app).routes[0]
    call = route._bound().call
    subject = make_record(1)
    threads = [threading.Thread(target=call, args=(subject, None)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Session.log == ["open 1"]
    for hook in declarations_of(app).stop_hooks:
        hook()
    assert Session.log == ["open 1", "commit 1"]


def test_one_of_the_app_that_fails_to_open_on_a_loop_is_tried_again() -> None:
    app = app_of()
    attempts: list[int] = []

    @asynccontextmanager
    async def open_late() -> AsyncIterator[str]:
        attempts.append(1)
        await asyncio.sleep(0)
        if len(attempts) < 3:
            raise ConnectionError("not yet")
        yield "up"
        attempts.append(-1)

    async def handle(number: int, pool: Any) -> None:
        assert pool == "up"

    handle.__annotations__["pool"] = Annotated[str, Provide(open_late, scope="app")]
    app.handler("orders", value=Int64(), ordering="unordered", concurrency=4)(handle)
    consumer = consumer_for(app)

    async def scenario() -> None:
        deliveries = await consumer.deliver_all_async([1, 2, 3, 4])
        assert [delivery.outcome for delivery in deliveries] == ["done"] * 4
        for hook in declarations_of(app).stop_hooks:
            closing = hook()
            if closing is not None:
                await closing

    asyncio.run(scenario())
    assert attempts == [1, 1, 1, -1]


class TestDeclarations:
    """What is refused where it is declared."""

    def test_what_opens_nothing(self) -> None:
        for wrong, wanted in ((7, "a function"), (lambda where: None, "without")):
            with pytest.raises(ConfigError, match=wanted):
                Provide(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="scope must be"):
            Provide(open_session, scope="record")  # type: ignore[arg-type]

    def test_an_async_resource_in_a_handler_that_is_not(self) -> None:
        def handle(number: int, session: OfAsyncCall) -> None: ...

        with pytest.raises(ConfigError, match="found an async resource"):
            App("billing").handler("orders", value=Int64())(handle)

    def test_provide_without_a_function(self) -> None:
        def handle(number: int, session: Any) -> None: ...

        handle.__annotations__["session"] = Annotated[Session, Provide]
        with pytest.raises(ConfigError, match=r"found Provide, wanted Provide\("):
            App("billing").handler("orders", value=Int64())(handle)

    def test_an_annotation_that_is_not_there(self) -> None:
        def handle(number: int, session: Any) -> None: ...

        handle.__annotations__["session"] = "Annotated[Nowhere, Provide(open_session)]"
        with pytest.raises(ConfigError, match=r"session: found the annotation .* cannot be evaluated"):
            App("billing").handler("orders", value=Int64())(handle)


def test_resources_through_the_clients(
    shell: Any, kafka: Any, make_topic: Callable[..., str], kafka_group: str, wait: Any
) -> None:
    topic = make_topic("orders")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    seen: list[int] = []
    if shell.name == "asyncio":

        @app.handler(topic, value=Int64())
        async def handle_async(number: int, session: OfAsyncCall, pool: OfAsyncApp) -> None:
            seen.append(number)
    else:

        @app.handler(topic, value=Int64())
        def handle(number: int, session: OfCall, pool: OfApp) -> None:
            seen.append(number)

    with Producer(kafka.bootstrap_servers, value=Int64()) as producer:
        producer.send_many(topic, [(number,) for number in range(20)])
    shell.start(app)
    wait(lambda: seen == list(range(20)))
    shell.stop(app)
    assert Session.opened == 21
    assert sum(entry.startswith("commit") for entry in Session.log) == 21, "that of the app when it has stopped"
    assert Session.log[-1].startswith("commit")
