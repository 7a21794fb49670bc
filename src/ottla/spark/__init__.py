"""Kafka pipelines on PySpark with pip packages only (extra `ottla[spark]`).

    spark = ottla.spark.session("orders")
    df = spark.readStream.format("ottla").option("kafka.bootstrap.servers", "...").option("subscribe", "orders").load()
    good, bad = ottla.spark.split(ottla.spark.decode(df, value=Avro(Order)))

Plain Spark, nothing hidden: a data source and sink named `ottla`, decoding that does not throw, dead letters, and a
session with the settings that matter. Nothing here imports PySpark or needs Java until it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.dead_letter_rows import dead_letters
    from ottla.spark.decoding import decode, split
    from ottla.spark.frames import read, read_stream
    from ottla.spark.java import Java, JavaMissing, find_java
    from ottla.spark.pipeline import NotCaughtUp, Pipeline, PipelineFailed, Running, unique
    from ottla.spark.spark_session import session

_HOMES = {
    "Java": "java",
    "JavaMissing": "java",
    "NotCaughtUp": "pipeline",
    "Pipeline": "pipeline",
    "PipelineFailed": "pipeline",
    "Running": "pipeline",
    "dead_letters": "dead_letter_rows",
    "decode": "decoding",
    "find_java": "java",
    "read": "frames",
    "read_stream": "frames",
    "session": "spark_session",
    "split": "decoding",
    "unique": "pipeline",
}

__all__ = [
    "Java",
    "JavaMissing",
    "NotCaughtUp",
    "Pipeline",
    "PipelineFailed",
    "Running",
    "dead_letters",
    "decode",
    "find_java",
    "read",
    "read_stream",
    "session",
    "split",
    "unique",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `python -m ottla.spark.java` must run where neither PySpark nor pyarrow is installed."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
