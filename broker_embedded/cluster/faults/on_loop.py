"""Runs small functions on the cluster's thread, for callers on any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class OnLoop:
    """`on_loop(function)` runs a function on the loop and returns its result; it runs it directly while there is no
    loop, or on the loop's own thread. `loop` is read each time: a cluster that is stopped and started again has a new
    one."""

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None) -> None:
        self._loop = loop

    def __call__(self, function: Callable[[], T]) -> T:
        loop = self._loop()
        if loop is None or not loop.is_running() or _is_running_here(loop):
            return function()
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(run)
        return done.result()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
