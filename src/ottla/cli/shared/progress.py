"""Progress on stderr, where a person watches and a thing takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from ottla.cli.shared.output import is_quiet, is_terminal

_FIRST_AFTER_S = 1.0
_EVERY_S = 0.5


class ProgressLine:
    """`with ProgressLine("read", total=1_000) as progress: progress.advance(10)`. Silent in a pipe, and for what is
    quick.

    One line that is written over again, and removed at the end. `total` None: how much there is, is not known.
    `is_shown` False: never, because the results go to the same terminal.
    """

    def __init__(
        self,
        what: str,
        *,
        total: int | None = None,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
        is_shown: bool = True,
    ) -> None:
        self._what = what
        self._total = total
        self._stream: Any = sys.stderr if stream is None else stream
        self._now = now
        self._started_at = now()
        self._next_at = self._started_at + _FIRST_AFTER_S
        self._is_watched = is_shown and is_terminal(self._stream) and not is_quiet()
        self._is_shown = False
        self.done = 0

    def advance(self, count: int = 1) -> None:
        """Count so many more as done."""
        self.done += count
        if not self._is_watched:
            return
        at = self._now()
        if at >= self._next_at:
            self._next_at = at + _EVERY_S
            self._is_shown = True
            self._stream.write(f"\r\x1b[K{line(self._what, self.done, self._total, at - self._started_at)}")
            self._stream.flush()

    def set(self, done: int, total: int | None) -> None:
        """Set how many are done in all, of how many."""
        self._total = total
        self.advance(done - self.done)

    def close(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._is_shown = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def waiting() -> Callable[[int, int], None] | None:
    """`on_wait` of an `Admin`: says how many answers have come, where a person watches; else None."""
    if is_quiet() or not is_terminal(sys.stderr):
        return None
    shown: list[ProgressLine] = []

    def on_wait(answered: int, asked: int) -> None:
        if not shown and answered < asked:
            shown.append(ProgressLine("answers", total=asked))
        if shown:
            shown[0].set(answered, asked)
        if answered == asked and shown:
            shown.pop().close()

    return on_wait


def line(what: str, done: int, total: int | None, seconds: float) -> str:
    """`read 1,200 of 4,800 (25 %), 600/s, 6 s left`."""
    rate = done / seconds if seconds > 0 else 0.0
    if not total:
        return f"{what} {done:,}, {rate:,.0f}/s"
    left = f", {max(0, total - done) / rate:,.0f} s left" if rate > 0 else ""
    return f"{what} {done:,} of {total:,} ({min(100, 100 * done // total)} %), {rate:,.0f}/s{left}"
