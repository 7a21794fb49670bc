"""SIGTERM for a command that must not be cut off in the middle of a step: it is held back, and asked for in between."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_TERM: Final = {signal.SIGTERM}
_LOOK_EVERY_S: Final = 0.05


@contextmanager
def held_back() -> Iterator[Callable[[float], bool]]:
    """Hold SIGTERM back inside the block. Gives a wait of so many seconds, which ends at SIGTERM and returns whether it
    came.

    Use it before threads are begun: they must not take the signal either. Ctrl-C is as always.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERM)
    try:
        yield _comes_within if hasattr(signal, "sigtimedwait") else _is_pending_within
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _comes_within(seconds: float) -> bool:
    return signal.sigtimedwait(_TERM, seconds) is not None


def _is_pending_within(seconds: float) -> bool:
    """Replacement for sigtimedwait(2), which macOS lacks."""
    until_s = time.monotonic() + seconds
    while not _TERM & signal.sigpending():
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(left_s, _LOOK_EVERY_S))
    signal.sigwait(_TERM)
    return True
