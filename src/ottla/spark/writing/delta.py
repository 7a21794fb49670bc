"""Delta tables without a jar: tasks write Parquet files, the driver makes one commit of them for each micro-batch.

The commit carries the number of the batch under the query's id (Delta's own application transactions), so a batch that
is repeated after a crash is passed over. Nothing of a batch is visible before its commit, and all of it after.

Files of attempts that failed or were killed are in the batch's folder and not in the commit: after it the driver
deletes what it finds there. What a task writes later than that stays until `DeltaTable.vacuum`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ottla.errors import ConfigError
from ottla.spark.checkpoints.foreign_files import arrow_file_system
from ottla.spark.writing.delta_commits import check_installed, committed_once, last_committed, opened, query_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_WRITTEN: Final = "path string, size long, rows long, partition string"
_OPEN_FILES: Final = 100
"""Files that a task has open at once, one for each partition: then it closes them, and begins new ones."""
_PARTITION_TYPES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")


class DeltaWriter:
    """Appends each micro-batch to a table, as a function for `foreachBatch`. Number -1 is a batch without a repeat."""

    def __init__(self, location: str, *, partition_by: Sequence[str] = ()) -> None:
        check_installed()
        self._location = location
        self._partition_by = tuple(partition_by)

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._check_partitions(rows)
        app = query_id(rows.sparkSession) if number >= 0 else uuid.uuid4().hex
        if number >= 0 and last_committed(self._location, app) >= number:
            return
        folder = f"ottla-{app}/{max(number, 0)}"
        write = partial(_write_files, location=self._location, folder=folder, partition_by=self._partition_by)
        written = rows.mapInArrow(write, _WRITTEN).collect()
        if written:
            self._commit(rows, written, app, number)
            # Only now: of two drivers that write the same batch, the one whose commit fails must delete nothing.
            self._sweep(folder, {row.path for row in written})

    def _check_partitions(self, rows: DataFrame) -> None:
        types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        for name in self._partition_by:
            if types.get(name) not in _PARTITION_TYPES:
                found = f"a column of type {types[name]}" if name in types else f"none among {', '.join(types)}"
                wanted = f"a column of type {', '.join(_PARTITION_TYPES)}"
                raise ConfigError(f"partition_by {name}: found {found}, wanted {wanted}")

    def _commit(self, rows: DataFrame, written: Sequence[Any], app: str, number: int) -> None:
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(row.path, row.size, json.loads(row.partition), now_ms, True, json.dumps({"numRecords": row.rows}))
            for row in written
        ]
        table = opened(self._location, rows, self._partition_by)
        with committed_once(table, self._location, app, number) as properties:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=list(self._partition_by) or None,
                commit_properties=properties,
            )

    def _sweep(self, folder: str, kept: set[str]) -> None:
        from pyarrow.fs import FileSelector

        file_system, root = arrow_file_system(self._location)
        selector = FileSelector(f"{root}/{folder}", allow_not_found=True, recursive=True)
        for info in file_system.get_file_info(selector):
            if info.is_file and info.path.removeprefix(f"{root}/") not in kept:
                file_system.delete_file(info.path)


def _write_files(
    batches: Iterator[pa.RecordBatch], *, location: str, folder: str, partition_by: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows, a file for each partition, and return what was written. Runs on executors."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = f"{context.partitionId()}-{context.attemptNumber()}" if context is not None else "0-0"
    files = _Files(location, folder, f"{attempt}-{uuid.uuid4().hex}")
    for batch in batches:
        for values, rows in _split(batch, partition_by):
            files.write(values, rows)
    found = files.close()
    if found:
        yield pa.RecordBatch.from_pylist(found)


class _Files:
    """The Parquet files that a task writes, one for each partition that it meets."""

    def __init__(self, location: str, folder: str, stem: str) -> None:
        self._file_system, self._root = arrow_file_system(location)
        self._folder = folder
        self._stem = stem
        self._open: dict[str, _File] = {}
        self._done: list[dict[str, Any]] = []

    def write(self, values: Mapping[str, str | None], rows: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        key = json.dumps(values)
        if key not in self._open:
            if len(self._open) == _OPEN_FILES:
                self.close()
            # Delta has the values in its log. Polars looks for them here, as Hive wrote them.
            folders = [self._folder, *(f"{name}={_segment(value)}" for name, value in values.items())]
            path = f"{'/'.join(folders)}/{self._stem}-{len(self._done) + len(self._open)}.parquet"
            full = f"{self._root}/{path}"
            if self._file_system.type_name == "local":  # an object store would get an empty object for each folder
                self._file_system.create_dir(full.rpartition("/")[0], recursive=True)
            stream = self._file_system.open_output_stream(full)
            self._open[key] = _File(path, stream, pq.ParquetWriter(stream, rows.schema))
        file = self._open[key]
        file.writer.write_batch(rows)
        file.rows += rows.num_rows

    def close(self) -> list[dict[str, Any]]:
        """Close all files, and return what has been written up to now."""
        for key, file in self._open.items():
            file.writer.close()
            size = file.stream.tell()
            file.stream.close()
            self._done.append({"path": file.path, "size": size, "rows": file.rows, "partition": key})
        self._open.clear()
        return self._done


@dataclass(slots=True)
class _File:
    path: str
    stream: Any
    writer: Any
    rows: int = 0


def _split(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[dict[str, str | None], pa.RecordBatch]]:
    """Return the rows of each partition, without the columns that it has in common."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    if not partition_by:
        yield {}, batch
        return
    keys = pa.Table.from_batches([batch]).select(list(partition_by))
    rest = batch.drop_columns(list(partition_by))
    for row in keys.group_by(list(partition_by)).aggregate([]).to_pylist():
        masks = [_equal(batch.column(name), value) for name, value in row.items()]
        mask = masks[0]
        for more in masks[1:]:
            mask = pc.and_(mask, more)
        yield {name: _text(value) for name, value in row.items()}, rest.filter(mask)


def _segment(value: str | None) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe="")


def _equal(column: pa.Array, value: object) -> pa.Array:
    import pyarrow.compute as pc

    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)


def _text(value: object) -> str | None:
    """Return a partition's value as Delta writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)
