"""The parent of Spark's Python workers, with everything loaded once (`spark.python.daemon.module`).

Spark's own daemon forks bare workers that import pyarrow and numpy each for themselves, and collect garbage over all of
it after every task: 60 % of a small task's time. Here the modules are imported before the fork and frozen, so that
forked workers share them and the collector never looks at them again.
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import Any

_PRELOADED = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "ottla.columnar.reading.fetch",
    "ottla.columnar.writing.writer",
    "ottla.spark.reading.source",
    "ottla.spark.writing.sink",
    "ottla.spark.values.decoding",
    "ottla.spark.values.source_decoding",
)


def main() -> None:
    """Load, freeze, then do what Spark's daemon does."""
    from pyspark import daemon

    from ottla.spark.jvm.interrupts import ignore_in_workers_of

    ignore_in_workers_of(daemon)
    for name in _PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # an older Spark, or an extra that is not installed: the worker will import what it needs
    daemon.worker = _quiet(daemon.worker)
    gc.collect()
    gc.freeze()
    daemon.manager()


def _quiet(worker: Any) -> Any:
    """Return the worker function, wrapped so that it ends without a traceback when Spark closes its connection, as
    `limit()` and `show()` do every time."""

    def run(*arguments: Any) -> Any:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            os._exit(0)

    return run


if __name__ == "__main__":
    main()
