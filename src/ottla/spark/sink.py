"""The sink: rows into topics, at least once.

Each task writes its rows with an idempotent producer and ends when all of them are acknowledged. Nothing else is
committed there: when Spark kills a task, the task's input *ends normally, truncated*, so the end of the input proves
nothing. Spark repeats a failed batch, and its rows may then be there twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from ottla.columnar import TopicWriter
from ottla.errors import ConfigError
from ottla.spark.connections import cluster_for
from ottla.spark.options import SinkOptions, sink_options

_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
    "headers": (ArrayType,),
}


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task wrote."""

    rows: int
    bytes_sent: int


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """The writer of `df.write`."""
    if overwrite:
        raise ConfigError("mode overwrite: records of a topic cannot be overwritten; use mode('append')")
    return _BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    """The writer of `df.writeStream`."""
    return _StreamWriter(_checked(options, schema))


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, iterator)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: the records were acknowledged while the tasks ran."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be taken back; Spark runs the batch again."""


def write_task(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Write one task's rows and wait for all acknowledgements."""
    with TopicWriter(cluster_for(options.wire), topic=options.topic, first_partition=_task_number()) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        written = writer.flush()
    return TaskWritten(rows=written.rows, bytes_sent=written.bytes_sent)


def _task_number() -> int:
    """Where rows without a key begin: another partition in each task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return os.getpid() if context is None else context.partitionId()


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """The options, if rows of this schema can be written with them: an error before the first task, not in it."""
    read = sink_options(options)
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(f"the sink needs a column value; found {', '.join(names)}")
    if read.topic is None and "topic" not in names:
        raise ConfigError("the sink needs the option topic, or a column topic")
    for field in schema.fields:
        accepted = _ACCEPTED.get(field.name)
        if accepted is None:
            raise ConfigError(f"the sink has no column {field.name}; it takes {', '.join(_ACCEPTED)}")
        if not isinstance(field.dataType, accepted):
            wanted = " or ".join(kind.typeName() for kind in accepted)
            raise ConfigError(f"column {field.name}: found {field.dataType.simpleString()}, wanted {wanted}")
    return read
