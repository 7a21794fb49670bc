"""An asyncio loop whose time is a `VirtualClock`'s.

asyncio asks its loop for the time in one place and waits in one place, the selector. So a loop with another `time()`
and a selector that translates how long to wait is enough: `call_later`, `sleep`, `timeout` and everything built on them
follow without knowing.

Time is moved inside the selector, when asyncio has nothing left to run and no socket has anything to read: whatever a
timer started has come to rest before the next one runs. Between nodes of one cluster that includes their conversation,
since both ends are served by this loop; a client in another thread or process is not waited for.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import Context
from heapq import heapify
from typing import TYPE_CHECKING, Any

from broker_embedded.cluster.time.advance import NEAR_NS, ClockStage, plan
from broker_embedded.cluster.time.real_timers import RealTimers
from broker_embedded.cluster.time.virtual_clock import VirtualClock

SETTLE_S = 0.001
"""Before a leap: loopback may deliver a moment after `send` has returned, if the machine is busy."""

Events = list[tuple[selectors.SelectorKey, int]]


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop on a virtual clock. Its thread is the one that runs it; `advance` may be called from any other."""

    if TYPE_CHECKING:
        _scheduled: list[asyncio.TimerHandle]
        _ready: Any
        _clock_resolution: float

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._real_timers = RealTimers()
        self._stages: list[ClockStage] = []
        self._arrival: Future[None] | None = None
        super().__init__(_VirtualSelector(self))
        self._clock_resolution = 1e-6  # sums of floats: a timer is never late by a rounding error
        try:
            clock.bind(self)
        except RuntimeError:
            super().close()
            raise

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def call_later_real(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call later in real time, for a wait from outside the simulation. On the loop's thread."""
        return self._real_timers.call_later(self, delay, callback, args, context)

    def close(self) -> None:
        super().close()
        self._clock.unbind(self)
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.set_exception(RuntimeError("the cluster was stopped while its time was being moved"))

    # --- for the clock

    def advance(self, to_ns: int) -> Future[None]:
        """Move time to `to_ns`. One at a time; the clock sees to that."""
        arrival: Future[None] = Future()
        self.call_soon_threadsafe(self._start_advance, to_ns, arrival)
        return arrival

    def speed_changed(self) -> None:
        self.call_soon_threadsafe(int)  # look at the clock again, and do nothing else

    def is_own_thread(self) -> bool:
        return getattr(self, "_thread_id", None) == threading.get_ident()

    def _start_advance(self, to_ns: int, arrival: Future[None]) -> None:
        self._stages = plan(now_ns=self._clock.monotonic_ns(), target_ns=to_ns)
        self._arrival = arrival

    # --- called by the selector

    def wait(self, real_selector: selectors.BaseSelector, timeout: float | None) -> Events:
        """Wait for I/O as long as asyncio wants to, in virtual time."""
        if timeout is not None and timeout <= 0:
            events = real_selector.select(0)
        elif self._arrival is not None:
            events = real_selector.select(SETTLE_S if self._stages and self._stages[0].is_leap else 0)
            if not events and not self._real_timers.has_due():
                self._move()
        else:
            waits = (
                None if timeout is None else self._clock.real_seconds(timeout),
                self._real_timers.seconds_to_next(),
            )
            events = real_selector.select(min((wait for wait in waits if wait is not None), default=None))
        self._ready.extend(self._real_timers.take_due())
        return events

    def _move(self) -> None:
        """Move to the next moment: nothing is left to do at this one."""
        if not self._stages:
            arrival, self._arrival = self._arrival, None
            if arrival is not None:
                arrival.set_result(None)
            return
        stage = self._stages[0]
        if stage.is_leap:
            self._leap(stage.until_ns)
            self._stages.pop(0)
            return
        timer_ns = self._next_timer_ns()
        if timer_ns is not None and timer_ns <= stage.until_ns:
            self._clock.move_to(timer_ns)
        else:
            self._clock.move_to(stage.until_ns)
            self._stages.pop(0)

    def _next_timer_ns(self) -> int | None:
        """Return the next timer's time; asyncio has just dropped cancelled timers from the front."""
        return _nanoseconds(self._scheduled[0].when()) if self._scheduled else None

    def _leap(self, to_ns: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if to_ns <= now_ns:  # a running clock may be there already
            return
        near_s, leap_s = (now_ns + NEAR_NS) / 1e9, (to_ns - now_ns) / 1e9
        for handle in self._scheduled:
            if handle.when() < near_s or getattr(handle._callback, "keeps_time_left", False):  # type: ignore[attr-defined]
                handle._when += leap_s  # type: ignore[attr-defined]
        heapify(self._scheduled)
        self._clock.move_to(to_ns)


class _VirtualSelector(selectors.BaseSelector):
    """The machine's selector; only how long to wait is decided by the loop."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> Events:
        return self._loop.wait(self._real, timeout)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def _nanoseconds(seconds: float) -> int:
    """Return the microsecond at or after `seconds`: timers are set in milliseconds, what is beyond is a float's
    rounding."""
    return math.ceil(seconds * 1e6 - 1e-2) * 1000
