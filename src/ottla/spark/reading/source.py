"""The data source `ottla`: what `spark.read` and `spark.readStream.format("ottla")` call, batch and streaming.

The reader objects here are thin: `log.py` knows where partitions begin and end, `planner.py` decides who reads what,
`ottla.columnar` reads. Spark pickles the reader once and sends that copy to the workers, so `read` may use nothing that
another method has stored; connections are kept per process (`connections.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ottla.columnar.arrays.schema import arrow_schema
from ottla.spark.checkpoints.offsets import tasks_of
from ottla.spark.connections import cluster_for
from ottla.spark.options import DECODE_OPTION, SourceOptions, source_columns, source_options
from ottla.spark.planner import divide
from ottla.spark.reading.filters import from_option, narrowed
from ottla.spark.reading.stream_position import StreamPosition
from ottla.spark.reading.subscription import batch_ranges
from ottla.wire_client import OffsetRange


class OttlaSource(DataSource):
    """Kafka topics as tables. See `docs/how-to/spark.md` for the options."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        options = dict(self.options)
        columns, decode = source_columns(options), options.get(DECODE_OPTION)
        if decode is None:
            plain: StructType = from_arrow_schema(arrow_schema(columns))
            return plain
        # Here and in `read_task`, because Spark starts a process for every stream: loading the serdes there, where
        # nothing is decoded, would be a tenth of the time until a query starts.
        from ottla.spark.values.source_decoding import decoded_schema

        schema: StructType = decoded_schema(columns, decode)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(source_options(dict(self.options), is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(source_options(dict(self.options), is_streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.writing.sink import batch_writer

        return batch_writer(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla.spark.writing.sink import stream_writer

        return stream_writer(dict(self.options), schema)


class Task(InputPartition):
    """The offset ranges that one Spark task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        ranges: tuple[OffsetRange, ...] = self.value
        return ranges


def read_task(options: SourceOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task, as Arrow record batches; decoded, where that was asked for."""
    from ottla.columnar import read_ranges  # by workers only: what plans a stream starts without the decoder

    cluster = cluster_for(options.wire)
    batches = read_ranges(cluster, task.ranges, columns=options.columns, on_data_loss=options.on_data_loss.of)
    if options.decode is None:
        yield from batches
        return
    from ottla.spark.values.decoding import decode_batch
    from ottla.spark.values.source_decoding import unpack_decoders

    decoders = unpack_decoders(options.decode)
    with closing(batches):  # Spark may stop reading at any time: the connection must not keep an answer
        for batch in batches:
            yield decode_batch(batch, decoders)


def tasks_for(
    options: SourceOptions, ranges: Sequence[OffsetRange], *, count: int | None = None
) -> list[InputPartition]:
    """Return the planned tasks, `count` of them where it is given, as Spark's input partitions."""
    if count is None:
        count = options.tasks.count(sum(each.size for each in ranges))
    return [Task(ranges) for ranges in divide(ranges, count)]


class BatchReader(DataSourceReader):
    """`spark.read`: everything between two positions, as it stands when the plan is made."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        cluster = cluster_for(self._options.wire)
        ranges = narrowed(cluster, batch_ranges(cluster, self._options), from_option(self._options.where))
        return tasks_for(self._options, ranges) or [Task(())]  # Spark wants at least one; an empty one yields nothing

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read_task(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. All methods but `read` run in one process that lives as long as the query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._position: StreamPosition | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._stream().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream().freeze_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._stream().advance(start, budget=limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._stream().log_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch: as many as `end` says, so that a batch that is repeated has the same ones."""
        return tasks_for(self._options, self._stream().ranges(start, end), count=tasks_of(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream().done(end)

    def stop(self) -> None:
        if self._position is not None:
            self._position.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_position": None}

    def _stream(self) -> StreamPosition:
        if self._position is None:
            end_quietly_when_spark_hangs_up()
            self._position = StreamPosition(cluster_for(self._options.wire), self._options)
        return self._position


def end_quietly_when_spark_hangs_up() -> None:
    """Let a closed connection end the process without a traceback, in a process of Spark's own.

    Spark ends a query's source by closing its end of the connection. The process that it keeps for the source then
    raises an EOFError or a broken pipe, with two tracebacks on the driver's stderr for every query that is stopped.
    """
    if not getattr(sys.modules.get("__main__"), "__file__", "").endswith("python_streaming_source_runner.py"):
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, BrokenPipeError | ConnectionResetError | EOFError):
            previous(kind, error, trace)

    sys.excepthook = hook
