"""SIGTERM in a child of multiprocessing: its producers are closed, then the process ends as terminated.

Python runs a handler in the main thread, between two bytecodes. A worker of a pool waits for its next task in C, on a
lock; a signal that comes right before that wait is not noticed any more, and `Pool.terminate` waits for ever. So the
byte that Python's C handler writes at once (`signal.set_wakeup_fd`) is read in a thread, which does the work.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

_LONGEST_END_S: Final = 10.0

_LONGEST_WAIT_S: Final = 1.0
"""Longest wait of the main thread. Closing may need a lock that it holds: of an import, or of logging."""

_pipe: tuple[int, int] | None = None
"""The pipe that Python's C signal handler of this process writes to."""

_is_ending_here: Callable[[], bool] = bool
_has_ended = threading.Event()

_mask_before_fork: set[signal.Signals | int] | None = None


def ends_with(end: Callable[[], None], *, is_ending_here: Callable[[], bool]) -> None:
    """Call `end()` on SIGTERM, unless SIGTERM has another handler already.

    It has ten seconds. A second SIGTERM ends the process at once. `is_ending_here`: whether the thread that asks is
    ending the process already.
    """
    global _pipe, _is_ending_here, _has_ended
    is_free = signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _wait_for_the_end)
    if not is_free or _pipe is not None or threading.current_thread() is not threading.main_thread():
        return
    _is_ending_here, _has_ended = is_ending_here, threading.Event()
    reading, writing = _pipe = os.pipe()
    os.set_blocking(writing, False)
    others = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if others != -1:  # an event loop's, which receives signals at once itself
        signal.set_wakeup_fd(others)
        _forget()
        return
    threading.Thread(target=_wait_for_sigterm, args=(reading, end), name="ottla-terminated", daemon=True).start()
    signal.signal(signal.SIGTERM, _wait_for_the_end)


def before_fork() -> None:
    """Block SIGTERM over a fork, or a child would forward it to its parent and survive."""
    global _mask_before_fork
    if _pipe is not None:
        _mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def after_fork_in_parent() -> None:
    global _mask_before_fork
    mask, _mask_before_fork = _mask_before_fork, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def after_fork_in_child() -> None:
    """Drop the inherited pipe; its thread runs in the parent only."""
    _forget()
    after_fork_in_parent()


def _forget() -> None:
    global _pipe
    if _pipe is None:
        return
    reading, writing = _pipe
    _pipe = None
    with contextlib.suppress(ValueError, OSError):
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, writing):
            signal.set_wakeup_fd(current)
    if signal.getsignal(signal.SIGTERM) is _wait_for_the_end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(reading)
    os.close(writing)


def _wait_for_sigterm(reading: int, end: Callable[[], None]) -> None:
    while signal.SIGTERM not in os.read(reading, 64):
        pass
    # `signal.signal` is for the main thread alone, and that one may wait for a lock in C.
    ctypes.CDLL(None).signal(signal.SIGTERM, None)  # SIG_DFL: a second one ends the process at once
    ending = threading.Thread(target=end, name="ottla-ending", daemon=True)
    ending.start()
    ending.join(_LONGEST_END_S)
    _has_ended.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _wait_for_the_end(_number: int, _frame: Any) -> None:
    """Hold the main thread where it runs Python: records that it would send now are not accepted any more."""
    if not _is_ending_here():
        _has_ended.wait(_LONGEST_WAIT_S)
