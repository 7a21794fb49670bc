"""Found by PySpark: a top-level module `pyspark_<name>` with a `DefaultSource` needs no registration.

So `spark.read.format("ottla")` works on any session as soon as the package is installed.
"""

from __future__ import annotations

from ottla.spark.reading.source import OttlaSource


class DefaultSource(OttlaSource):
    """The data source `ottla`."""
