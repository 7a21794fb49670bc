"""One promise is kept with what another one brings: converted, recovered from, or cancelled from either end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.common.promises import Promise, map_result, pipe, run_into, settle


def _double(number: int) -> int:
    return 2 * number


def _fails(number: int) -> int:
    raise ValueError(number)


def _ends(source: Promise[int], how: str) -> None:
    if how == "result":
        source.set_result(21)
    elif how == "error":
        source.set_exception(OSError("away"))
    else:
        source.cancel()


@pytest.mark.parametrize("is_done_before", [False, True])
@pytest.mark.parametrize(
    ("how", "convert", "wanted"),
    [("result", _double, 42), ("result", _fails, ValueError), ("error", _double, OSError), ("cancel", _double, None)],
)
def test_a_promise_ends_as_its_source_does(
    how: str, convert: Callable[[int], int], wanted: Any, is_done_before: bool
) -> None:
    source: Promise[int] = Promise()
    promise: Promise[int] = Promise()
    if is_done_before:
        _ends(source, how)
    pipe(promise, source, convert)
    if not is_done_before:
        assert not promise.done()
        _ends(source, how)
    assert promise.done()
    assert promise.cancelled() is (wanted is None)
    if isinstance(wanted, int):
        assert promise.result() == wanted
    elif wanted is not None:
        assert isinstance(promise.exception(), wanted)


def test_an_error_may_be_recovered_from() -> None:
    source: Promise[int] = Promise()
    promise: Promise[int] = Promise()
    pipe(promise, source, _double, recover=lambda error: -1)
    source.set_exception(OSError())
    assert promise.result() == -1


@pytest.mark.parametrize("cancels_source", [False, True])
def test_a_cancelled_promise_cancels_a_source_that_nobody_else_waits_for(cancels_source: bool) -> None:
    source: Promise[int] = Promise()
    promise: Promise[int] = Promise()
    pipe(promise, source, _double, cancels_source=cancels_source)
    promise.cancel()
    assert source.cancelled() is cancels_source
    if not cancels_source:
        source.set_result(1)  # what comes too late is dropped
        assert promise.cancelled()


def test_a_result_that_is_there_needs_no_promise() -> None:
    source: Promise[int] = Promise()
    source.set_result(21)
    assert map_result(source, _double) == 42


def test_a_promise_of_a_promise_is_one_promise() -> None:
    inner: Promise[int] = Promise()
    outer: Promise[int] = Promise()
    run_into(outer, lambda: inner)
    inner.set_result(3)
    assert outer.result() == 3


def test_what_raises_fails_the_promise() -> None:
    promise: Promise[int] = Promise()
    run_into(promise, lambda: _fails(1))
    assert isinstance(promise.exception(), ValueError)


def test_a_promise_that_was_cancelled_is_not_settled_again() -> None:
    promise: Promise[int] = Promise()
    promise.cancel()
    settle(promise, 1)
    assert promise.cancelled()


async def test_a_future_of_the_loop_is_a_source_too() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    promise: Promise[int] = Promise()
    settle(promise, future)
    promise.cancel()
    assert future.cancelled()
