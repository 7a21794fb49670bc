"""Ctrl-C is the driver's: it ends a pipeline after the running micro-batch, so what works on that must not listen.

A terminal sends it to every process that runs in the foreground, and Spark's workers take it: a task fails in the
middle, and locally the query with it. The JVM is told in `pipeline/signals.py`.
"""

from __future__ import annotations

import signal
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

from pyspark import TaskContext


def ignore_in_tasks() -> None:
    """In a worker of Spark's, which a daemon that is not ours has made, ignore Ctrl-C from now on."""
    if TaskContext.get() is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def ignore_in_workers_of(daemon: ModuleType) -> None:
    """Ignore Ctrl-C in Spark's daemon, and in each worker that it forks: those would set Python's own handler."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own: Any = SimpleNamespace(**vars(signal) | {"default_int_handler": signal.SIG_IGN})
    daemon.signal = own  # type: ignore[attr-defined]
