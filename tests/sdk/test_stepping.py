"""A procedure that is driven does what the same code does where it calls directly: in a thread and on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.stepping import Procedure, Steps, drive, drive_async, run, run_async

Log = list[str]


class Trouble(Exception):
    """What calls raise in these procedures."""


# Procedures, as data


@dataclass(frozen=True)
class Call:
    """A call that returns `answer`, or raises it."""

    answer: int | type[BaseException]


@dataclass(frozen=True)
class Try:
    """`try: body`, `except Trouble: handler`, `finally: cleanup`."""

    body: tuple[Part, ...]
    handler: tuple[Part, ...]
    cleanup: tuple[Part, ...]


@dataclass(frozen=True)
class Within:
    """Another procedure, which this one waits for."""

    body: tuple[Part, ...]


@dataclass(frozen=True)
class Return:
    """The end of the procedure that it stands in."""

    value: int


Part = Call | Try | Within | Return


class _Returned(BaseException):
    def __init__(self, value: int) -> None:
        self.value = value


def directly(parts: tuple[Part, ...], log: Log) -> int:
    """What the procedure means, without `ottla.stepping`."""
    try:
        _directly(parts, log)
    except _Returned as returned:
        return returned.value
    return -1


def _directly(parts: tuple[Part, ...], log: Log) -> None:
    for part in parts:
        match part:
            case Call(answer):
                log.append(f"got {_made(answer, log)}")
            case Try(body, handler, cleanup):
                try:
                    _directly(body, log)
                except Trouble as error:
                    log.append(f"caught {error}")
                    _directly(handler, log)
                finally:
                    _directly(cleanup, log)
            case Within(body):
                log.append(f"within {directly(body, log)}")
            case Return(value):
                raise _Returned(value)


def stepwise(parts: tuple[Part, ...], log: Log, made: Callable[[int | type[BaseException], Log], Any]) -> Steps[int]:
    """The same, whose calls are made by whoever drives it."""
    try:
        yield from _stepwise(parts, log, made)
    except _Returned as returned:
        return returned.value
    return -1


def _stepwise(parts: tuple[Part, ...], log: Log, made: Callable[[int | type[BaseException], Log], Any]) -> Steps[None]:
    for part in parts:
        match part:
            case Call(answer):
                got = yield lambda answer=answer: made(answer, log)  # type: ignore[misc]
                log.append(f"got {got}")
            case Try(body, handler, cleanup):
                try:
                    yield from _stepwise(body, log, made)
                except Trouble as error:
                    log.append(f"caught {error}")
                    yield from _stepwise(handler, log, made)
                finally:
                    yield from _stepwise(cleanup, log, made)
            case Within(body):
                within = yield from stepwise(body, log, made)
                log.append(f"within {within}")
            case Return(value):
                raise _Returned(value)


def _made(answer: int | type[BaseException], log: Log) -> int:
    log.append(f"called for {answer}")
    if isinstance(answer, int):
        return answer
    raise answer("as wanted")


async def _made_on_loop(answer: int | type[BaseException], log: Log) -> int:
    await asyncio.sleep(0)
    return _made(answer, log)


def outcome(call: Callable[[], int]) -> int | str:
    try:
        return call()
    except (Trouble, KeyboardInterrupt) as error:
        return f"raised {error!r}"


def procedures() -> st.SearchStrategy[tuple[Part, ...]]:
    answers = st.integers(0, 3) | st.sampled_from([Trouble, KeyboardInterrupt])
    simple = st.builds(Call, answers) | st.builds(Return, st.integers(0, 3))

    def nested(part: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
        parts = st.lists(part, max_size=4).map(tuple)
        return st.builds(Try, parts, parts, parts) | st.builds(Within, parts)

    return st.lists(st.recursive(simple, nested, max_leaves=12), max_size=5).map(tuple)


@given(procedures())
def test_a_driven_procedure_does_what_direct_calls_do(procedure: tuple[Part, ...]) -> None:
    expected_log: Log = []
    expected = outcome(lambda: directly(procedure, expected_log))

    log: Log = []
    assert (outcome(lambda: run(stepwise(procedure, log, _made))), log) == (expected, expected_log)

    log = []

    def driven_by_a_loop() -> int:
        # Not `asyncio.run`, which makes a KeyboardInterrupt of a task its own.
        waiting = run_async(stepwise(procedure, log, _made_on_loop))
        try:
            while True:
                waiting.send(None)
        except StopIteration as done:
            return int(done.value)

    assert (outcome(driven_by_a_loop), log) == (expected, expected_log)


# One rule each


def _asks(*answers: int) -> Steps[list[Any]]:
    got = []
    for answer in answers:
        got.append((yield lambda answer=answer: answer))  # type: ignore[misc]
    return got


def test_a_procedure_without_calls_has_a_result() -> None:
    assert run(_asks()) == []


def test_nothing_is_called_before_the_driver_does() -> None:
    called: list[str] = []

    def steps() -> Steps[None]:
        called.append("begun")
        yield lambda: called.append("call")

    def made(call: Callable[[], Any]) -> Any:
        assert called == ["begun"]
        return call()

    made_steps = steps()
    assert called == []
    drive(made_steps, made)
    assert called == ["begun", "call"]


def doubled(numbers: range) -> Procedure[int, int, list[int]]:
    got = []
    for number in numbers:
        try:
            got.append((yield number))
        except Trouble:
            got.append(-1)
    return got


def test_requests_are_answered_by_whoever_drives() -> None:
    def answer(number: int) -> int:
        if number == 1:
            raise Trouble
        return 2 * number

    async def answer_later(number: int) -> int:
        await asyncio.sleep(0)
        return answer(number)

    assert drive(doubled(range(3)), answer) == [0, -1, 4]
    assert asyncio.run(drive_async(doubled(range(3)), answer_later)) == [0, -1, 4]


def test_an_error_that_was_caught_is_not_the_context_of_a_later_one() -> None:
    def fails() -> None:
        raise Trouble("no broker")

    def steps() -> Steps[None]:
        with contextlib.suppress(Trouble):
            yield fails
        yield int
        raise LookupError("nobody answers")

    with pytest.raises(LookupError) as raised:
        run(steps())
    assert raised.value.__context__ is None


def test_nothing_is_kept_of_an_error_that_was_caught() -> None:
    kept: list[weakref.ref[Trouble]] = []

    class Held(Trouble):
        def __init__(self) -> None:
            kept.append(weakref.ref(self))

    def fails() -> None:
        raise Held

    def steps() -> Steps[None]:
        with contextlib.suppress(Trouble):
            yield fails

    gc.disable()
    try:
        run(steps())
        assert [held() for held in kept] == [None]
    finally:
        gc.enable()


def test_a_call_that_raises_stop_iteration_does_not_end_the_procedure_quietly() -> None:
    def empty() -> None:
        next(iter(()))

    def steps() -> Steps[None]:
        yield empty

    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        run(steps())
    assert isinstance(raised.value.__cause__, StopIteration)


def test_what_a_procedure_makes_of_an_error_names_its_cause() -> None:
    def fails() -> None:
        raise Trouble("no broker")

    def steps() -> Steps[None]:
        try:
            yield fails
        except Trouble as error:
            raise LookupError("nobody answers") from error

    with pytest.raises(LookupError, match="nobody answers") as raised:
        run(steps())
    assert str(raised.value.__cause__) == "no broker"


async def test_a_task_that_is_cancelled_has_the_procedures_cleanup_awaited() -> None:
    waits, cleaned = asyncio.Event(), asyncio.Event()

    async def wait_for_ever() -> None:
        waits.set()
        await asyncio.Event().wait()

    async def clean() -> None:
        await asyncio.sleep(0)
        cleaned.set()

    def steps() -> Steps[None]:
        try:
            yield wait_for_ever
        finally:
            yield clean

    task = asyncio.create_task(run_async(steps()))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert cleaned.is_set()


def test_calls_are_made_one_after_the_other_in_their_order() -> None:
    made: list[int] = []

    def steps(numbers: Iterator[int]) -> Steps[None]:
        for number in numbers:
            yield lambda number=number: made.append(number)  # type: ignore[misc]

    run(steps(iter(range(5))))
    assert made == list(range(5))
