"""How far a run of a plan is, on stderr: in all, and below it each broker that still receives."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from ottla.browse.human_amounts import bytes_text
from ottla.cli.shared.output import is_terminal, say

if TYPE_CHECKING:
    from ottla.admin.placement.move_progress import BrokerProgress, MoveProgress

_EVERY_S = 10.0
_MOST_BROKERS = 12


class ProgressView:
    """Prints progress after each check: over its own lines on a terminal, every ten seconds elsewhere.

    The last one, when all is done, is always printed.
    """

    def __init__(self, *, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._is_watched = is_terminal(self._stream)
        self._next_at = float("-inf")
        self._lines = 0

    def __call__(self, progress: MoveProgress) -> None:
        is_last = progress.done == progress.moves
        lines = [progress_line(progress), *broker_lines(progress)]
        if self._is_watched:
            self._write_over(lines, is_last=is_last)
        elif is_last or self._now() >= self._next_at:
            self._next_at = self._now() + _EVERY_S
            say("\n".join(lines))

    def _write_over(self, lines: list[str], *, is_last: bool) -> None:
        width = shutil.get_terminal_size().columns - 1  # a line that wraps would be two, and one of them would stay
        up = f"\x1b[{self._lines - 1}A" if self._lines > 1 else ""
        text = "\n".join(line[:width] for line in lines)
        self._stream.write(f"{up}\r\x1b[J{text}{chr(10) if is_last else ''}")
        self._stream.flush()
        self._lines = 0 if is_last else len(lines)


def progress_line(progress: MoveProgress) -> str:
    """`3 of 7 partitions, 1.2 GiB of 4.8 GiB, 48.1 MiB/s, 75 s left; orders-3 waits for room`."""
    waits = next((f"; {each.move.place} {each.why}" for each in progress.statuses if each.why), "")
    problem = f"; {progress.problem}" if progress.problem else ""
    return f"{progress.done:,} of {progress.moves:,} partitions, {_amounts(progress)}{waits}{problem}"


def broker_lines(progress: MoveProgress) -> Iterator[str]:
    """`  broker 4: 1.2 GiB of 4.8 GiB, 48.1 MiB/s, 75 s left, 5 moves to it`, most left first."""
    left = [each for each in progress.brokers if each.copied < each.bytes or each.moves]
    left.sort(key=lambda each: (each.copied - each.bytes, each.broker))
    for each in left[:_MOST_BROKERS]:
        yield f"  broker {each.broker}: {_amounts(each)}, {each.moves:,} {'move' if each.moves == 1 else 'moves'} to it"
    if len(left) > _MOST_BROKERS:
        yield f"  and {len(left) - _MOST_BROKERS:,} more brokers"


def _amounts(part: MoveProgress | BrokerProgress) -> str:
    rate = f", {bytes_text(part.rate)}/s" if part.rate else ""
    left = f", {part.left_s:,.0f} s left" if part.left_s is not None else ""
    return f"{bytes_text(part.copied)} of {bytes_text(part.bytes)}{rate}{left}"
