"""An asyncio loop without a machine: no threads, no sockets, and time that jumps to the next timer.

The order of everything follows from the order of the calls, so a run with the same seed is the same run. At each
moment at which nothing is left to do, `on_quiet` may look at the state of the world before time goes on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappush
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

from broker_embedded.cluster.simulation.process import Process, current_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_NS = 1_000_000_000_000
EPOCH_MS = 1_700_000_000_000 - START_NS // 1_000_000


class NothingToDo(Exception):
    """Every process waits for another, and no timer is set: the simulation is deadlocked."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """One thread, one heap of timers."""

    if TYPE_CHECKING:
        _scheduled: list[asyncio.TimerHandle]
        _ready: Any
        _selector: Any
        _clock_resolution: float

    def __init__(self) -> None:
        super().__init__()
        self._now_ns = START_NS
        self._clock_resolution = 1e-6
        self._selector = _TimeMachine(self)
        self.on_quiet: Callable[[], None] = _nothing
        self.turns = 0
        """The number of callbacks that ran: a measure of work that does not depend on the machine."""
        self.set_task_factory(_new_task)

    def time(self) -> float:
        return self._now_ns / 1e9

    @property
    def now_ns(self) -> int:
        return self._now_ns

    # --- whose callback it is

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def resume(self, process: Process) -> None:
        """Resume a paused process, with the events that it missed."""
        process.is_paused = False
        held, process.held = process.held, []
        self._ready.extend(held)

    # --- what a machine would do

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        raise RuntimeError(f"a simulation has no threads, but {func!r} asked for one")

    def close(self) -> None:
        """Close the loop: what is under way is dropped, not cleaned up."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        super().close()

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there is no I/O, and what arrives over the simulated network is a timer."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread sleeps that would have to be woken."""

    def jump(self, timeout: float | None) -> None:
        """Jump to the next timer, where asyncio would sleep."""
        if timeout is not None and timeout <= 0:
            self.turns += 1
            return
        self.on_quiet()
        if self._ready:
            return
        if not self._scheduled:
            raise NothingToDo
        when = self._scheduled[0].when()
        self._now_ns = max(self._now_ns, math.ceil(when * 1e6 - 1e-2) * 1000)


class SimulatedClock:
    """The loop's time as the broker's clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + self._loop.now_ns // 1_000_000

    def monotonic_ms(self) -> int:
        return self._loop.now_ns // 1_000_000


class _TimeMachine:
    """In the place of asyncio's selector."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.jump(timeout)
        return []

    def close(self) -> None:
        pass


class _Handle(asyncio.Handle):
    def _run(self) -> None:
        if _may_run(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    def _run(self) -> None:
        if _may_run(self):
            super()._run()


def _may_run(handle: asyncio.Handle) -> bool:
    process: Process | None = handle._context.get(current_process)  # type: ignore[attr-defined]
    if process is None:
        return True
    if process.is_paused:
        process.held.append(handle)
        return False
    process.has_run = True
    return not process.is_dead


def _new_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    context: Context | None = options.get("context")
    process = current_process.get() if context is None else context.get(current_process)
    if process is not None:
        process.tasks.add(task)
    return task


def _nothing() -> None:
    pass
