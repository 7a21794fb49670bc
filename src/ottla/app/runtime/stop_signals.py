"""SIGINT and SIGTERM of a service, for both shells: the first one stops it gracefully, a second one ends it at once.

`run` blocks the program, so the signals are its own. `serve` shares an event loop: it takes them where it is what the
program waits for, and leaves them to a server or to the user's code where those have them.

Handlers that run may take long, and some never return: pressing Ctrl-C twice means not to wait for them. At
least once still holds: what is not committed is delivered again, and the second signal says from where.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn

from ottla.consumer.readiness.health import Health
from ottla.errors import ConfigError
from ottla.telemetry import log_event

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
HANDLER_THREADS: Final = "ottla-handler"
"""How the threads of synchronous handlers under `serve` are called."""

_MOST_NAMED: Final = 10
_HANDLED_BY_OTHERS: Final = "the program has handlers of its own for SIGTERM or SIGINT"


class StopSignals:
    """Takes the signals while its block lasts. `ask` is called at the first one, in the main thread, between any two
    of its instructions: it must do no more than set a flag. `health` says what is unfinished."""

    def __init__(
        self, ask: Callable[[], None], health: Callable[[], Health], *, signals: Sequence[signal.Signals] = SIGNALS
    ) -> None:
        self._ask = ask
        self._health = health
        self._signals = signals
        self._count = 0
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "signals are handled only in the main thread: call run(handle_signals=False) or "
                "serve(handle_signals=False), and stop() elsewhere"
            )
        self._before = [(number, signal.signal(number, self._on_signal)) for number in self._signals]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before:
            signal.signal(number, before)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._ask()
            return
        end_at_once(number, self._health)


def signals_of_loop(task: asyncio.Task[Any] | None) -> tuple[Sequence[signal.Signals], str | None]:
    """Return the signals that a service in `task` of the running loop handles, and the reason if it handles none."""
    if threading.current_thread() is not threading.main_thread():
        return (), "its event loop does not run in the main thread"
    sigint = signal.getsignal(signal.SIGINT)
    # `asyncio.run` replaces Python's own handler by one that cancels the task it was called with.
    main_task = sigint.keywords.get("main_task") if isinstance(sigint, functools.partial) else None
    is_untouched = main_task is not None or sigint in (signal.default_int_handler, signal.SIG_DFL, signal.SIG_IGN)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or not is_untouched:
        return (), _HANDLED_BY_OTHERS
    is_main = task is main_task if main_task is not None else asyncio.all_tasks() == {task}
    if not is_main:
        return (), "it is one of several tasks, and not the one that the program waits for"
    # Whoever starts a program with SIGINT ignored (a shell that puts it into the background) wants it ignored.
    return (signal.SIGTERM,) if sigint is signal.SIG_IGN else SIGNALS, None


def say_that_signals_pass_by(why: str, *, group: str) -> None:
    """Log that a signal does not stop the service."""
    hint = (
        "call app.stop(), or cancel serve(), when the program is to end; serve(handle_signals=True) takes the signals"
    )
    level = "info" if why is _HANDLED_BY_OTHERS else "warning"
    log_event("signals_not_handled", level, {"app": group, "reason": why, "hint": hint})


def unfinished(health: Health) -> list[str]:
    """Return where records are that were handed to a handler and are not done: `orders-0 from offset 42, for 12 s`."""
    return [
        f"{each.topic_partition} from offset {each.oldest_unfinished_offset}"
        + (f", for {each.oldest_unfinished_age_ms / 1_000:.0f} s" if each.oldest_unfinished_age_ms >= 1_000 else "")
        for each in health.partitions
        if each.oldest_unfinished_offset is not None
    ]


def say_what_is_waited_for(health: Health, *, group: str, drain_s: float) -> None:
    """Log what a stop waits for, how long at most, and how to stop at once."""
    waits_for = unfinished(health)
    if waits_for:
        fields = {
            "app": group,
            "waits_for": _shown(waits_for),
            "at_most_s": drain_s,
            "hint": "a second signal (Ctrl-C) ends it at once; what is not done is delivered again",
        }
        log_event("app_stopping", "info", fields)


def _shown(places: list[str]) -> list[str]:
    more = len(places) - _MOST_NAMED
    return places if more <= 0 else [*places[:_MOST_NAMED], f"and {more} more partitions"]


def end_at_once(number: int, health: Callable[[], Health]) -> NoReturn:
    """End the process, whatever it is doing, as a second signal does, and print what is delivered again. By descriptor:
    a stream may be in use by what the signal interrupted."""
    try:
        again = unfinished(health())
    except Exception:  # the signal may have come while this was being changed: to end matters more
        again = []
    places = "; ".join(_shown(again))
    text = f"ended at once by a second signal; delivered again: {places or 'what was not committed'}\n"
    try:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, text.encode())
    except (OSError, ValueError):
        pass
    os._exit(128 + number)
