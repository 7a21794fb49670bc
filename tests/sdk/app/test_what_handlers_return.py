"""A handler that never ran never counts as done, and what it returns means the same everywhere.

Plain and async handlers are called through the same `Invoker` that both shells use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from time import monotonic
from typing import Any

import pytest

from ottla.app import App
from ottla.app.app import declarations_of
from ottla.consumer.model.run import Run, RunResult
from ottla.errors import ConfigError
from ottla.failures import Ack, Dead, Retry, RetryPolicy, Skip
from ottla.records import Record, TopicPartition

KEYS = [b"a", b"a", b"b", b"a"]


class NotComparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array with more than one element is ambiguous")

    __hash__ = object.__hash__


class EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


async def no_wait() -> None:
    return None


def run_of(app: App, keys: list[bytes | None]) -> tuple[Any, Run]:
    (route,) = declarations_of(app).routes
    records: list[Record[Any]] = [
        Record("orders", 0, offset, 0, None, None, [], key, b"%d" % offset) for offset, key in enumerate(keys)
    ]
    run = Run(
        topic_partition=TopicPartition("orders", 0),
        epoch=1,
        route=route.name,
        records=records,
        attempt=1,
        started_ms=0,
    )
    return route.invoker(list(declarations_of(app).all_middlewares), {}), run


def deliver(app: App, keys: list[bytes | None] | None = None) -> RunResult:
    """Deliver one run to the app's only handler, as its shell would, and wait for the result."""
    invoker, run = run_of(app, KEYS if keys is None else keys)
    if not invoker.binding.is_async:
        found = invoker.deliver(run)
        return found if isinstance(found, RunResult) else found.wait()

    async def main() -> RunResult:
        found = await invoker.deliver_async(run, no_wait)
        return found if isinstance(found, RunResult) else await found.wait()

    return asyncio.run(main())


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records or ()]


def failures(result: RunResult) -> dict[int, str]:
    return {record.offset: failure.message for record, failure in result.failures}


@pytest.fixture(params=["plain", "async"])
def handling(request: pytest.FixtureRequest) -> Callable[..., App]:
    """An app with one handler that calls a function, plain or async."""

    def make(work: Callable[[Any], Any], **options: Any) -> App:
        app = App("billing", retry=RetryPolicy(max_attempts=3))

        async def on_loop(subject: Any) -> Any:
            await asyncio.sleep(0)
            return work(subject)

        def plain(subject: Any) -> Any:
            return work(subject)

        app.handler("orders", name="handle", **options)(plain if request.param == "plain" else on_loop)
        return app

    return make


def acknowledged() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def failed() -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(ConnectionError("no leader"))
    return future


class TestGenerators:
    @pytest.mark.parametrize("is_batch", [False, True])
    def test_a_handler_with_yield_is_refused_where_it_is_declared(self, is_batch: bool) -> None:
        app = App("billing")

        def handle(subject: bytes) -> Iterator[None]:
            yield

        async def handle_async(subject: bytes) -> AsyncIterator[None]:
            yield

        class Handler:
            def __call__(self, subject: bytes) -> Iterator[None]:
                yield

        for function in (handle, handle_async, Handler()):
            with pytest.raises(ConfigError, match="a generator function"):
                app.handler("orders", name="handle", batch=is_batch)(function)

    def test_so_are_hooks_and_middleware_with_yield(self) -> None:
        app = App("billing")

        def opening() -> Iterator[None]:
            yield

        def around(record: Any, context: Any, call_next: Any) -> Iterator[Any]:
            yield call_next(record)

        for declare, function in ((app.on_start, opening), (app.on_stop, opening), (app.middleware, around)):
            with pytest.raises(ConfigError, match="a generator function"):
                declare(function)  # type: ignore[operator]

    @pytest.mark.parametrize("is_batch", [False, True])
    def test_a_generator_that_comes_back_is_a_failure_of_what_it_was_called_for(
        self, handling: Any, is_batch: bool
    ) -> None:
        def work(subject: Any) -> Any:
            return (one for one in subject)

        result = deliver(handling(work, batch=is_batch, ordering="unordered"))
        assert offsets(result.done) == []
        assert all("a generator, which nobody runs" in text for text in failures(result).values())
        assert sorted(failures(result)) == [0, 1, 2, 3]


class TestOneRecord:
    @pytest.mark.parametrize("value", [[Dead("bad")], (None, Retry()), [Skip], {Ack()}, [[Dead("bad")]]])
    def test_outcomes_in_a_list_are_a_mistake_that_is_named(self, handling: Any, value: Any) -> None:
        result = deliver(handling(lambda subject: value), [None])
        assert "wanted the outcome itself" in failures(result)[0]
        (_, failure) = result.failures[0]
        assert isinstance(failure.outcome, Dead)
        assert failure.error_type == "TypeError"

    @pytest.mark.parametrize("value", [7, "text", {"a": 1}, [1, 2, "b"], [], {3}, object()])
    def test_any_other_value_is_the_handlers_own_business(self, handling: Any, value: Any) -> None:
        result = deliver(handling(lambda subject: value))
        assert not result.failures
        assert result.done is None

    @pytest.mark.parametrize(
        "value", [[failed(), None], [None, failed()], (5, failed()), [[acknowledged()], [failed()]], {failed()}]
    )
    def test_what_was_sent_is_waited_for_wherever_it_stands_in_a_list(self, handling: Any, value: Any) -> None:
        result = deliver(handling(lambda subject: value), [None])
        assert failures(result) == {0: "no leader"}

    def test_a_middleware_may_answer_for_an_async_handler(self) -> None:
        app = App("billing")

        @app.middleware
        def filtering(record: Any, context: Any, call_next: Any) -> Any:
            return Skip("not ours") if record.offset == 1 else call_next(record)

        called: list[bytes] = []

        @app.handler("orders")
        async def handle(value: bytes) -> None:
            called.append(value)

        result = deliver(app)
        assert (result.failures, result.skipped, called) == ((), 1, [b"0", b"2", b"3"])


class TestBatch:
    @pytest.mark.parametrize("value", [None, 4, "four", {"inserted": 4}, Ack(), acknowledged(), [acknowledged()] * 2])
    def test_one_value_covers_the_batch(self, handling: Any, value: Any) -> None:
        result = deliver(handling(lambda subject: value, batch=True))
        assert not result.failures
        assert result.done is None

    def test_one_skip_skips_all_of_it(self, handling: Any) -> None:
        result = deliver(handling(lambda subject: Skip("old"), batch=True))
        assert (list(result.failures), result.skipped, offsets(result.done)) == ([], 4, [0, 1, 2, 3])

    def test_one_dead_is_a_dead_letter_of_each_at_once(self, handling: Any) -> None:
        result = deliver(handling(lambda subject: Dead("bad file"), batch=True))
        assert failures(result) == dict.fromkeys(range(4), "bad file")
        assert not result.is_batch_failure, "none of them is to be tried alone"

    @pytest.mark.parametrize("value", [Retry(reason="busy"), failed(), [acknowledged(), failed()]])
    def test_one_retry_or_one_failed_delivery_has_the_batch_delivered_again(self, handling: Any, value: Any) -> None:
        result = deliver(handling(lambda subject: value, batch=True))
        assert sorted(failures(result)) == [0, 1, 2, 3]
        assert result.is_batch_failure, "in the end each is tried alone: which is to blame is not known"

    @pytest.mark.parametrize("value", [[], [None] * 3, [None] * 5, (Ack(), Dead("bad"))])
    def test_a_list_of_another_length_names_both_numbers(self, handling: Any, value: Any) -> None:
        result = deliver(handling(lambda subject: value, batch=True))
        texts = set(failures(result).values())
        assert len(texts) == 1
        assert f"of {len(value)} for 4 records" in texts.pop()

    def test_entries_mean_what_they_mean_for_one_record(self, handling: Any) -> None:
        entries = [Dead("bad"), 7, failed(), [Skip()]]
        result = deliver(handling(lambda subject: entries, batch=True))
        assert offsets(result.done) == [1]
        assert failures(result)[0] == "bad"
        assert failures(result)[2] == "no leader"
        assert "wanted the outcome itself" in failures(result)[3]

    def test_a_retry_holds_back_the_later_records_of_its_key(self, handling: Any) -> None:
        app = handling(lambda subject: [Retry(), None, None, Retry(), Dead("bad"), Skip()], batch=True)
        result = deliver(app, [b"a", b"a", b"b", b"a", b"a", b"a"])
        assert list(failures(result)) == [0, 4]
        assert offsets(result.untouched) == [1, 3, 5], "they come again behind it, whatever the handler said"
        assert offsets(result.done) == [2]
        assert result.skipped == 0

    @pytest.mark.parametrize(
        ("ordering", "keys"), [("unordered", [b"a", b"a", b"b", b"a"]), ("partition", [None, None, None, None])]
    )
    def test_where_no_order_is_promised_it_holds_back_nothing(self, handling: Any, ordering: str, keys: Any) -> None:
        app = handling(lambda subject: [Retry(), None, None, None], batch=True, ordering=ordering)
        result = deliver(app, keys)
        assert (list(failures(result)), offsets(result.done)) == ([0], [1, 2, 3])


class TestContextVariables:
    order = ContextVar("order", default="none")

    @pytest.mark.parametrize("suspends", [False, True])
    def test_what_a_handler_sets_ends_with_its_record(self, suspends: bool) -> None:
        seen: list[str] = []

        async def handle(value: bytes) -> None:
            seen.append(self.order.get())
            self.order.set(value.decode())
            if suspends:
                await asyncio.sleep(0)
            seen.append(self.order.get())
            if value == b"1":
                raise ConnectionError

        app = App("billing")
        app.handler("orders", ordering="unordered")(handle)
        deliver(app)
        assert seen == ["none", "0", "none", "1", "none", "2", "none", "3"]

    @pytest.mark.parametrize("value", [NotComparable(), [1], EqualToAll()], ids=["raises", "equal", "equal to all"])
    def test_values_are_told_apart_by_identity(self, value: Any) -> None:
        """As numpy's arrays, whose `==` gives no answer, and lists, which a later record could change."""
        around: ContextVar[Any] = ContextVar("around")
        own = type(value)() if not isinstance(value, list) else list(value)
        seen: list[bool] = []

        async def handle(_: bytes) -> None:
            seen.append(around.get() is value)
            around.set(own)

        app = App("billing")
        app.handler("orders", ordering="unordered")(handle)
        token = around.set(value)
        try:
            result = deliver(app)
        finally:
            around.reset(token)

        assert seen == [True] * 4
        assert result.done is None
        assert not result.failures

    def test_also_in_threads_and_behind_a_failure(self) -> None:
        seen: list[str] = []

        def handle(value: bytes) -> None:
            seen.append(self.order.get())
            self.order.set(value.decode())
            if value == b"1":
                raise ConnectionError

        app = App("billing")
        app.handler("orders", ordering="unordered")(handle)
        deliver(app)
        assert seen == ["none"] * 4
        assert self.order.get() == "none"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_batch_has_a_context_of_its_own(self, is_async: bool) -> None:
        def handle(values: list[bytes]) -> None:
            self.order.set("batch")

        async def handle_async(values: list[bytes]) -> None:
            self.order.set("batch")
            await asyncio.sleep(0)
            assert self.order.get() == "batch"

        app = App("billing")
        app.handler("orders", batch=True)(handle_async if is_async else handle)
        invoker, run = run_of(app, KEYS)  # type: ignore[arg-type]

        async def main() -> None:
            if is_async:
                await invoker.deliver_async(run, no_wait)
            else:
                invoker.deliver(run)
            assert self.order.get() == "none"

        asyncio.run(main())

    def test_tasks_time_limits_and_errors_work_inside(self) -> None:
        seen: list[object] = []

        async def handle(value: bytes) -> None:
            self.order.set(value.decode())
            seen.append(await asyncio.create_task(self.of_a_task()))
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                seen.append("late")
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            if value == b"2":
                raise ConnectionError("busy")

        app = App("billing")
        app.handler("orders", ordering="unordered")(handle)
        result = deliver(app)
        assert seen == ["0", "late", "1", "late", "2", "late", "3", "late"]
        assert failures(result) == {2: "busy"}

    def test_the_loop_breathes_also_where_every_record_changes_the_context(self) -> None:
        breaths: list[int] = []
        handled: list[bytes] = []

        async def handle(value: bytes) -> None:
            self.order.set(value.decode())
            handled.append(value)
            until = monotonic() + 0.003
            while monotonic() < until:
                pass

        async def breathe() -> None:
            breaths.append(len(handled))

        app = App("billing")
        app.handler("orders")(handle)
        invoker, run = run_of(app, [None] * 6)
        asyncio.run(invoker.deliver_async(run, breathe))
        assert 2 <= len(breaths) <= 6

    async def of_a_task(self) -> str:
        return self.order.get()

    def test_a_stop_cancels_what_a_handler_waits_for(self) -> None:
        ended: list[str] = []

        async def handle(value: bytes) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(self.order.get())

        app = App("billing")
        app.handler("orders")(handle)
        invoker, run = run_of(app, KEYS)  # type: ignore[arg-type]

        async def main() -> None:
            task = asyncio.create_task(invoker.deliver_async(run, no_wait))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert ended == ["none"]


@pytest.mark.parametrize("value", [ValueError("x"), 5, None])
def test_an_outcome_without_text_for_its_reason_fails_the_record(handling: Any, value: Any) -> None:
    result = deliver(handling(lambda record: Dead(value)), [b"a"])

    assert "Dead: reason must be text, got" in failures(result)[0]


def test_what_is_no_table_of_exceptions_is_refused_where_it_is_declared() -> None:
    wanted = r"on_error: found a list, wanted outcomes by exception: \{ValueError: Dead\(\)\}"
    with pytest.raises(ConfigError, match=wanted):
        App("billing", on_error=[ValueError])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=wanted):
        App("billing").handler("orders", on_error=[ValueError])(print)  # type: ignore[call-overload]
