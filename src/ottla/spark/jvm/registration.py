"""Registering source and sink with a session, which decides the Python that executors start for them.

Spark finds `format("ottla")` without this, and then runs its tasks with the Python that it found it with: the one of
the driver, PYSPARK_DRIVER_PYTHON. A source that is registered is planned and run with PYSPARK_PYTHON, as functions are.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Register source and sink with this session, once: Spark logs a warning for each further time."""
    if spark in _registered:
        return
    from pyspark_ottla import DefaultSource

    spark.dataSource.register(DefaultSource)
    _registered.add(spark)
