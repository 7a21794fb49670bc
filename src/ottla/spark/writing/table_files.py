"""Parquet files of a table: tasks write them, and the driver deletes those that no commit names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN: Final = "path string, size long, rows long, partition string"
"""The columns of what `write_files` returns. The path begins below the root; the partition is JSON."""
_OPEN_FILES: Final = 100
"""Files that a task has open at once, one for each partition: then it closes them, and begins new ones."""

Root: TypeAlias = "Callable[[], tuple[Any, str]]"
"""Returns Arrow's file system and the folder of a table. It is pickled and called on executors."""


def delete_files_but(root: Root, folder: str, kept: set[str]) -> None:
    """Delete the files in a folder that attempts left behind which failed or were killed."""
    from pyarrow.fs import FileSelector

    file_system, path = root()
    selector = FileSelector(f"{path}/{folder}", allow_not_found=True, recursive=True)
    for info in file_system.get_file_info(selector):
        if info.is_file and info.path.removeprefix(f"{path}/") not in kept:
            file_system.delete_file(info.path)


def write_files(
    batches: Iterator[pa.RecordBatch],
    *,
    root: Root,
    folder: str,
    columns: pa.Schema,
    partition_by: tuple[str, ...],
    left_out: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows as these columns, a file for each partition and without the columns that are left out, and
    return what was written. Runs on executors."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = f"{context.partitionId()}-{context.attemptNumber()}" if context is not None else "0-0"
    files = _Files(root, folder, f"{attempt}-{uuid.uuid4().hex}", left_out=left_out)
    for batch in batches:
        for values, rows in _split(batch.cast(columns), partition_by):
            files.write(values, rows)
    found = files.close()
    if found:
        yield pa.RecordBatch.from_pylist(found)


class _Files:
    """The Parquet files that a task writes, one for each partition that it meets."""

    def __init__(self, root: Root, folder: str, stem: str, *, left_out: Sequence[str] = ()) -> None:
        self._file_system, self._root = root()
        self._left_out = list(left_out)
        self._folder = folder
        self._stem = stem
        self._open: dict[str, _File] = {}
        self._done: list[dict[str, Any]] = []

    def write(self, values: Mapping[str, str | None], rows: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        rows = rows.drop_columns(self._left_out)
        key = json.dumps(values)
        if key not in self._open:
            if len(self._open) == _OPEN_FILES:
                self.close()
            # Tables have the values in their metadata. Polars looks for Delta's here, as Hive wrote them.
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
    """Return the rows of each partition, and its values as Delta writes them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    if not partition_by:
        yield {}, batch
        return
    keys = pa.Table.from_batches([batch]).select(list(partition_by))
    for row in keys.group_by(list(partition_by)).aggregate([]).to_pylist():
        masks = [_equal(batch.column(name), value) for name, value in row.items()]
        mask = masks[0]
        for more in masks[1:]:
            mask = pc.and_(mask, more)
        yield {name: _text(value) for name, value in row.items()}, batch.filter(mask)


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
