"""Ctrl-C is the driver's: it ends a pipeline after the running micro-batch, so what works on that must not listen.

A terminal sends it to every process that runs in the foreground, and Spark's Python workers take it: a task or a commit
fails in the middle, and locally the query with it. The JVM is told in `pipeline/launch.py`.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

OF_SPARK = ("pyspark.", "ottla.spark.jvm.daemon")
"""What the processes that Spark starts run: `python -m pyspark.daemon`, for example."""


def ignore_in_processes_of_spark() -> None:
    """Ignore Ctrl-C from now on in a process that the JVM started, also from a daemon that is not ours."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_of_spark = spec is not None and spec.name.startswith(OF_SPARK)
    if is_of_spark and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def ignore_in_workers_of(daemon: ModuleType) -> None:
    """Ignore Ctrl-C in Spark's daemon and in each worker that it forks, which would set Python's own handler."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own: Any = SimpleNamespace(**vars(signal) | {"default_int_handler": signal.SIG_IGN})
    daemon.signal = own  # type: ignore[attr-defined]
