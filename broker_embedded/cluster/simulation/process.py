"""A simulated process: what a node or a client runs in, so that it can be paused or killed whole.

Everything that runs on the simulated loop belongs to the process in whose context it was scheduled; asyncio hands the
context on by itself, from a task to its callbacks and to the tasks it makes. A dead process's callbacks never run, a
paused one's are kept in order until it goes on. Neither the broker nor the client knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

current_process: ContextVar[Process | None] = ContextVar("current_process", default=None)


class Process:
    """One incarnation: a restart is a new process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.has_run = True
        """Something of it has run since somebody has set this to False."""
        self.held: list[asyncio.Handle] = []
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._remains: list[asyncio.Task[Any]] = []
        self._context = copy_context()
        self._context.run(current_process.set, self)

    def context(self) -> Context:
        """Return a context to run something in as part of this process."""
        return self._context.copy()

    def spawn(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        return self._context.run(lambda: loop.create_task(work, name=f"{self.name}: {name}"))

    def pause(self) -> None:
        self.is_paused = True

    def kill(self) -> None:
        """Kill the process: none of its code runs any more, not even cleanup."""
        self.is_dead = True
        self.is_paused = False
        self.held.clear()
        self._remains = [task for task in self.tasks if not task.done()]  # kept: a coroutine that is freed cleans up
        for task in self._remains:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to end like that
