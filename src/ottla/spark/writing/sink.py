"""The sink: rows into topics, at least once or exactly once (`delivery`).

At least once, each task writes its rows with an idempotent producer and ends when all of them are acknowledged. Spark
repeats a failed batch, and its rows may then be there twice. Exactly once, tasks prepare and the driver commits:
`exactly_once.py`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from ottla.columnar.writing.writer import GIVEN_BY_THE_LOG
from ottla.errors import ConfigError
from ottla.spark.checkpoints.files import is_local
from ottla.spark.connections import cluster_for
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.writing.exactly_once import abort_batch, commit_batch
from ottla.spark.writing.prepare import Work, prepare_task
from ottla.spark.writing.sink_identity import check_identity

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
    """Return the writer of `df.write`."""
    if overwrite:
        raise ConfigError("mode overwrite: records of a topic cannot be overwritten; use mode('append')")
    return _BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    """Return the writer of `df.writeStream`."""
    checked = _checked(options, schema)
    if checked.checkpoint is not None and is_local(checked.checkpoint):
        check_identity(checked)  # this process has no session: a store may be out of its reach
    return _StreamWriter(checked)


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid.uuid4().hex  # the same in all tasks: this object is pickled once

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return write_task(self._options, iterator)
        task, attempt = _task()
        work = Work(query=self._job, batch=None, task=task, attempt=attempt)
        return prepare_task(self._options, cluster_for(self._options.wire), work, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit all rows, now that every task has written its own."""
        if self._options.is_exactly_once:
            commit_batch(self._options, cluster_for(self._options.wire), messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort. Acknowledged at-least-once records stay; transactions are aborted."""
        if self._options.is_exactly_once:
            abort_batch(cluster_for(self._options.wire), messages)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return write_task(self._options, iterator)
        return prepare_task(self._options, cluster_for(self._options.wire), _stream_work(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: at least once, the records were acknowledged while the tasks ran."""
        if self._options.is_exactly_once:
            commit_batch(self._options, cluster_for(self._options.wire), messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: Spark runs the batch again when the query is started again."""
        if self._options.is_exactly_once:
            abort_batch(cluster_for(self._options.wire), messages)


def write_task(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Write one task's rows and wait for all acknowledgements."""
    with TopicWriter(cluster_for(options.wire), topic=options.topic, first_partition=_task()[0]) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        written = writer.flush()
    return TaskWritten(rows=written.rows, bytes_sent=written.bytes_sent)


def _task() -> tuple[int, int]:
    """Return the number of the task, with which rows without a key begin, and which attempt this is from 0 on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (os.getpid(), 0) if context is None else (context.partitionId(), context.attemptNumber())


def _stream_work() -> Work:
    """Return the batch and query of this task. Spark passes them to tasks, not to writers."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    batch = context and context.getLocalProperty("streaming.sql.batchId")
    if not query or batch is None:
        raise ConfigError("delivery=exactly-once: this Spark does not tell tasks their query and batch")
    return Work(query=query, batch=int(batch), task=context.partitionId(), attempt=context.attemptNumber())


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Return the options, if rows of this schema can be written with them: an error before the first task, not in
    it."""
    read = sink_options(options)
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(f"the sink needs a column value; found {', '.join(names)}")
    if read.topic is None and "topic" not in names:
        raise ConfigError("the sink needs the option topic, or a column topic")
    if read.is_exactly_once and read.topic is None:
        raise ConfigError("delivery=exactly-once needs the option topic: it is where the markers of batches are kept")
    for field in schema.fields:
        if field.name in GIVEN_BY_THE_LOG:
            continue  # what the source gives can be written as it is
        accepted = _ACCEPTED.get(field.name)
        if accepted is None:
            raise ConfigError(f"the sink has no column {field.name}; it takes {', '.join(_ACCEPTED)}")
        if not isinstance(field.dataType, accepted):
            wanted = " or ".join(kind.typeName() for kind in accepted)
            raise ConfigError(f"column {field.name}: found {field.dataType.simpleString()}, wanted {wanted}")
    return read
