"""SIGTERM and Ctrl-C as a request to stop between two micro-batches.

A terminal sends Ctrl-C to every process that it runs in the foreground. A JVM that Python started does not listen,
nor do the processes that it starts (`interrupts.py` sees to its workers). Under spark-submit the JVM comes first, and
Ctrl-C would end it at once, with its queries: it is told to leave Ctrl-C to Python while a pipeline runs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@contextmanager
def ctrl_c_spares_the_jvm(spark: SparkSession) -> Iterator[None]:
    """Under spark-submit, let the JVM and what it starts from now on ignore Ctrl-C."""
    jvm: Any = getattr(spark, "_jvm", None)  # Spark Connect's sessions have none
    if jvm is None or "PYSPARK_GATEWAY_PORT" not in os.environ:  # the JVM is elsewhere, or Python started it
        yield
        return
    signals = jvm.sun.misc
    interrupt = signals.Signal("INT")
    previous = signals.Signal.handle(interrupt, signals.SignalHandler.SIG_IGN)
    try:
        yield
    finally:
        signals.Signal.handle(interrupt, previous)
