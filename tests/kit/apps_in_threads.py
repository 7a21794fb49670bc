"""Apps of either shell that run in a thread of the test, where the test itself is synchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ottla import App

_STOP_S = 120.0


@contextmanager
def serving(app: App, *, is_async: bool) -> Iterator[list[Exception]]:
    """Run the app in a thread; yields the list that an error which ended it is added to."""
    ended: list[Exception] = []

    def run() -> None:
        try:
            if is_async:
                asyncio.run(app.serve())
            else:
                app.run(handle_signals=False)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        app.stop()
        thread.join(_STOP_S)
        assert not thread.is_alive()
