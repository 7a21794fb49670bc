"""A clock that a test holds in its hand.

    clock = VirtualClock()                  # frozen: time moves when the test says so
    clock = VirtualClock(speed=60)          # an hour passes in a minute

    with EmbeddedCluster(clock=clock) as kafka:
        kafka.clock.advance(days=7)         # returns when everything that falls due in a week has been done

It starts at the real time, so that the timestamps of real clients are neither old nor in the future. `now_ms`,
`monotonic_ms` and the cluster's `loop.time()` are one and the same time. Everything the cluster does by itself follows
it; what a client asked it to wait for does not, because the client's own clock is real (docs/how-to/virtual-time.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, Protocol

_START_NS = 1_000_000_000_000
"""Monotonic time at the start: not zero, which code may take for "never"."""

DAY_MS = 86_400_000


class Mover(Protocol):
    """A running loop that follows the clock: it alone moves the time, between two of its callbacks."""

    def advance(self, to_ns: int) -> Future[None]:
        """Advance the time, from any thread. Returns when everything that is due has been done."""
        ...

    def speed_changed(self) -> None: ...

    def is_own_thread(self) -> bool: ...


class _Line(NamedTuple):
    """virtual = virtual_ns + (real - real_ns) * speed. Replaced as a whole, so that any thread may read it."""

    real_ns: int
    virtual_ns: int
    speed: float


class VirtualClock:
    """Frozen unless it is given a speed. Of one cluster at a time; it outlives the cluster's restart."""

    def __init__(
        self,
        *,
        speed: float = 0.0,
        start_ms: int | None = None,
        real_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        _check_speed(speed)
        self._real_ns = real_ns
        self._line = _Line(real_ns(), _START_NS, speed)
        started_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        self._epoch_ms = started_ms - _START_NS // 1_000_000
        self._mover: Mover | None = None
        self._advancing = threading.Lock()
        self._passing = threading.Lock()
        self._speed = speed
        self._waiting = 0

    # --- Clock

    def now_ms(self) -> int:
        return self._epoch_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self.monotonic_ns() // 1_000_000

    def real_monotonic_ms(self) -> int:
        """Return the clients' time (see `common.clock`)."""
        return self._real_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return what `loop.time()` is, in nanoseconds."""
        line = self._line
        if not line.speed:
            return line.virtual_ns
        return line.virtual_ns + int((self._real_ns() - line.real_ns) * line.speed)

    # --- moving it

    @property
    def speed(self) -> float:
        """Virtual seconds per real second; 0 while frozen."""
        return self._speed

    def run(self, *, speed: float = 1.0) -> None:
        """Let time pass, `speed` times as fast as real time."""
        _check_speed(speed)
        with self._passing:
            self._speed = speed
            self._change_speed()

    def freeze(self) -> None:
        """Let time stand still."""
        self.run(speed=0.0)

    def advance(
        self, ms: float = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Move time forward; returns when what falls due in between has been done.

        Up to a minute each timer runs at its own moment and in order. A longer stretch is leapt over as if the machine
        had been suspended, and its end is walked again. May be called from any thread but the cluster's.
        """
        wanted_ms = ms + 1_000 * (seconds + 60 * (minutes + 60 * hours)) + DAY_MS * days
        if wanted_ms < 0:
            raise ValueError(f"time moves forward only, got {wanted_ms:g} ms")
        mover = self._mover
        if mover is not None and mover.is_own_thread():
            raise RuntimeError("the cluster's thread cannot wait for its own time: call advance from another one")
        with self._advancing:
            to_ns = self.monotonic_ns() + int(wanted_ms * 1_000_000)
            mover = self._mover
            if mover is None:
                self.move_to(to_ns)  # nobody is there who could have something to do
            else:
                mover.advance(to_ns).result()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Let time pass at least as fast as real time inside the block."""
        with self._passing:
            self._waiting += 1
            self._change_speed()
        try:
            yield
        finally:
            with self._passing:
                self._waiting -= 1
                self._change_speed()

    def _change_speed(self) -> None:
        speed = self._speed or (1.0 if self._waiting else 0.0)
        if speed != self._line.speed:
            self._line = _Line(self._real_ns(), self.monotonic_ns(), speed)
            if self._mover is not None:
                self._mover.speed_changed()

    # --- for the loop

    def bind(self, mover: Mover) -> None:
        if self._mover is not None:
            raise RuntimeError("this clock belongs to a cluster that is running: make another VirtualClock")
        self._mover = mover

    def unbind(self, mover: Mover) -> None:
        if self._mover is mover:
            self._mover = None

    def move_to(self, virtual_ns: int) -> None:
        """Move forward to a time; an earlier one is ignored."""
        now_ns = self.monotonic_ns()
        if virtual_ns > now_ns:
            self._line = _Line(self._real_ns(), virtual_ns, self._line.speed)

    def real_seconds(self, virtual_s: float) -> float | None:
        """Return how long the real wait is; None if it never ends by itself."""
        speed = self._line.speed
        return virtual_s / speed if speed else None


def _check_speed(speed: float) -> None:
    if speed < 0:
        raise ValueError(f"speed: found {speed:g}, wanted 0 (frozen) or more")
