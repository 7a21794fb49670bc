"""SIGTERM and Ctrl-C as a request to stop between two micro-batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C set the event; the second one does what it would have done without us."""
    previous: dict[int, Any] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, previous[number])
            signal.raise_signal(number)
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for wanted in (signal.SIGTERM, signal.SIGINT):
            previous[wanted] = signal.signal(wanted, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
