"""SIGTERM and SIGHUP end a command as Ctrl-C does: it says what is done, and how to go on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_code_of(error: KeyboardInterrupt) -> int:
    """Return 128 and the number of the signal, as a shell has it of a program that a signal ended."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """End as by Ctrl-C at SIGTERM and SIGHUP inside the block. Signals that are ignored, as under nohup, stay so."""
    taken: list[int] = []
    with contextlib.suppress(ValueError):  # not the main thread
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def handled_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Call `handle` with the number of each SIGTERM and SIGINT inside the block, and do nothing else."""

    def on_signal(number: int, _frame: Any) -> None:
        handle(number)

    before = [(number, signal.signal(number, on_signal)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block SIGINT inside the block. Processes that are started in it begin with it blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_sigint() -> None:
    """Ignore SIGINT, also one that was blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def leave_signals_to_service() -> None:
    """Leave signals to the service that the command runs."""
    for number in _ENDING:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: Any) -> NoReturn:
    raise Terminated(number)
