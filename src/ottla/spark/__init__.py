"""Kafka pipelines on PySpark with pip packages only (extra `ottla[spark]`).

    spark = ottla.spark.session("orders")
    df = spark.readStream.format("ottla").option("kafka.bootstrap.servers", "...").option("subscribe", "orders").load()
    good, bad = ottla.spark.split(ottla.spark.decode(df, value=Avro(Order)))

Plain Spark, nothing hidden: a data source and sink named `ottla`, decoding that does not throw, dead letters, and a
session with the settings that matter. Nothing here imports PySpark or needs Java until it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.spark.jvm.java import Java as Java
    from ottla.spark.jvm.java import JavaMissing as JavaMissing
    from ottla.spark.jvm.java import find_java as find_java
    from ottla.spark.jvm.spark_session import session as session
    from ottla.spark.pipeline import NotCaughtUp as NotCaughtUp
    from ottla.spark.pipeline import Pipeline as Pipeline
    from ottla.spark.pipeline import PipelineFailed as PipelineFailed
    from ottla.spark.pipeline import Running as Running
    from ottla.spark.pipeline import unique as unique
    from ottla.spark.reading.frames import read as read
    from ottla.spark.reading.frames import read_stream as read_stream
    from ottla.spark.values.dead_letter_rows import dead_letters as dead_letters
    from ottla.spark.values.decoding import decode as decode
    from ottla.spark.values.decoding import split as split
    from ottla.spark.values.trace_context import with_trace_context as with_trace_context

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.spark.jvm.java": ["Java", "JavaMissing", "find_java"],
        "ottla.spark.jvm.spark_session": ["session"],
        "ottla.spark.pipeline": ["NotCaughtUp", "Pipeline", "PipelineFailed", "Running", "unique"],
        "ottla.spark.reading.frames": ["read", "read_stream"],
        "ottla.spark.values.dead_letter_rows": ["dead_letters"],
        "ottla.spark.values.decoding": ["decode", "split"],
        "ottla.spark.values.trace_context": ["with_trace_context"],
    },
)
