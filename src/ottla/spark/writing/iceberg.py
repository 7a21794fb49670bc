"""Iceberg tables: a micro-batch is appended, or merged by key, in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.writing.iceberg_commits import IcebergTable
from ottla.spark.writing.table_files import Root
from ottla.spark.writing.table_writer import DELETES, TableAppender, TableMerger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_DATA: Final = "data/"
"""Where Iceberg's own writers have the files of a table."""


class IcebergWriter(TableAppender):
    """Appends each micro-batch to an Iceberg table."""

    _folder = _DATA

    def __init__(self, name: str, *, catalog: str | Mapping[str, Any], partition_by: Sequence[str] = ()) -> None:
        super().__init__(partition_by=partition_by)
        self._table = IcebergTable(name, catalog, partition_by=partition_by)

    def _last_committed(self, query: str) -> int:
        return self._table.last_committed(query)

    def _root(self, rows: DataFrame) -> Root:
        from pyarrow.fs import LocalFileSystem
        from pyiceberg.io.pyarrow import PyArrowFileIO

        table = self._table.create(rows)
        scheme, host, path = PyArrowFileIO.parse_location(table.location(), table.io.properties)
        file_system = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, host)
        if file_system.type_name == "local":  # PyIceberg's own class, and executors may lack PyIceberg
            file_system = LocalFileSystem()
        return partial(_given, file_system, path)

    def _commit(self, rows: DataFrame, written: Sequence[Any], query: str, number: int) -> None:
        def add(transaction: Any, properties: dict[str, str]) -> None:
            location = transaction.table_metadata.location
            # Their names have an id: no snapshot can have them, and none needs to be searched.
            paths = [f"{location}/{row.path}" for row in written]
            transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)

        self._table.commit(rows, query, number, add)


class IcebergMerger(TableMerger):
    """Merges each micro-batch into an Iceberg table by key: files with rows of these keys are written again."""

    def __init__(
        self,
        name: str,
        *,
        catalog: str | Mapping[str, Any],
        key: Sequence[str],
        order_by: str,
        delete: str | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        super().__init__(key=key, order_by=order_by, delete=delete, partition_by=partition_by)
        self._table = IcebergTable(name, catalog, partition_by=partition_by)

    def _last_committed(self, query: str) -> int:
        return self._table.last_committed(query)

    def _merge(self, rows: DataFrame, newest: pa.Table, query: str, number: int) -> None:
        import pyarrow.compute as pc

        there = newest.filter(pc.invert(newest.column(DELETES))).drop_columns([DELETES])

        def merge(transaction: Any, properties: dict[str, str]) -> None:
            transaction.delete(self._keys_of(newest), snapshot_properties=properties)
            if there.num_rows:
                transaction.append(there, snapshot_properties=properties)

        self._table.create(rows)
        self._table.commit(rows, query, number, merge)

    def _keys_of(self, newest: pa.Table) -> Any:
        """Return the filter of the rows that have one of these keys."""
        from pyiceberg import expressions

        e: Any = expressions  # its type hints describe models, not how they are made
        if len(self._key) == 1:
            return e.In(self._key[0], set(newest.column(self._key[0]).to_pylist()))
        each = [
            e.And(*(e.EqualTo(name, value) for name, value in row.items()))
            for row in newest.select(list(self._key)).to_pylist()
        ]
        return each[0] if len(each) == 1 else e.Or(*each)


def _given(file_system: Any, path: str) -> tuple[Any, str]:
    return file_system, path
