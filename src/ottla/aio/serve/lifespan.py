"""Runs an app beside a web application, from the start of the web server to its end.

The app runs in a task of the server's event loop. Signals are the server's. What ends the app early is logged at once,
is the reason for which it is not ready, and is raised when the web application stops: it is not lost in a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ottla.app.app import App, ended_early
from ottla.errors import LifecycleError
from ottla.failures.exceptions import described
from ottla.telemetry import log_event


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    """Start the app, yield when it has started, and stop it gracefully in the end. Raises what ended it."""
    ended_early(app, None)
    serving = asyncio.create_task(app.serve(handle_signals=False), name=f"ottla-{app.group}")
    serving.add_done_callback(partial(_note_end, app))
    try:
        await _started(app, serving)
        yield
    finally:
        if not serving.done():  # asked of an app that has ended it would end the next run
            app.stop()
        # In a task of its own: when the server cancels its lifespan, the drain must not be.
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            await serving
            raise


async def _started(app: App, serving: asyncio.Task[None]) -> None:
    await asyncio.sleep(0)  # it begins
    if not serving.done():
        runner: Any = app.runner
        starting = asyncio.ensure_future(runner.started.wait())
        try:
            await asyncio.wait([serving, starting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            starting.cancel()
    if serving.done():
        await serving
        raise LifecycleError(f"app {app.group!r} was stopped before it had started")


def _note_end(app: App, serving: asyncio.Task[None]) -> None:
    if serving.cancelled() or (error := serving.exception()) is None:
        return
    ended_early(app, error)
    log_event("app_ended_early", "error", {"app": app.group, "error": described(error)})
