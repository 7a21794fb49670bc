"""Questions about the event loop and the task that run here, if any."""

from __future__ import annotations

import asyncio


def is_on_event_loop() -> bool:
    """Return whether an event loop runs in this thread, and waits for what is called here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_being_cancelled() -> bool:
    """Return whether the current task itself is being cancelled, by a stop: not something that it awaited."""
    task = running_task()
    return task is not None and task.cancelling() > 0


def running_task() -> asyncio.Task[object] | None:
    """Return the task that runs here; None in a thread without an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
