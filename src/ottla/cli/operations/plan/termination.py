"""SIGTERM for a command that must not be cut off in the middle of a step: it is held back, and asked for in between."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[Callable[[float], bool]]:
    """What it gives waits for so many seconds, at most until SIGTERM comes, and returns whether it came.

    Use it before threads are begun: they must not take the signal either. Ctrl-C is as always.
    """
    waited = {signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        yield lambda seconds: signal.sigtimedwait(waited, seconds) is not None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
