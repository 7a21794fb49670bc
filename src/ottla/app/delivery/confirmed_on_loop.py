"""A run of an event loop whose result comes from another thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ottla.consumer.model.run import RunResult, Unconfirmed


class ConfirmedOnLoop:
    """For an event loop: a handled run that is confirmed in another thread."""

    __slots__ = ("_unconfirmed",)

    def __init__(self, unconfirmed: Unconfirmed) -> None:
        self._unconfirmed = unconfirmed

    async def wait(self) -> RunResult:
        loop = asyncio.get_running_loop()
        confirmed: asyncio.Future[RunResult] = loop.create_future()

        def settle(result: RunResult) -> None:
            if not confirmed.done():
                confirmed.set_result(result)

        def then(result: RunResult) -> None:
            with suppress(RuntimeError):  # the loop is closed: the app ended without this run
                loop.call_soon_threadsafe(settle, result)

        self._unconfirmed.when_confirmed(then)
        return await confirmed
