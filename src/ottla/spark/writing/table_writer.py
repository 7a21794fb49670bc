"""Tables without a jar: tasks write Parquet files, the driver makes one commit of them for each micro-batch.

The commit carries the number of the batch under the query's id, so a batch that is repeated after a crash is passed
over. Nothing of a batch is visible before its commit, and all of it after.

Files of attempts that failed or were killed are in the batch's folder and not in the commit: after it the driver
deletes what it finds there. What a task writes later than that stays until the table's files are vacuumed.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.spark.writing.table_files import WRITTEN, Root, delete_files_but, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DELETES: Final = "_ottla_deletes"
"""The column that is true where a row deletes its key."""
_PARTITION_TYPES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")


class LakeTable(ABC):
    """A table of one format, to which the driver commits. Number -1 is a batch without a repeat."""

    folder = ""
    """The folder of data below the table's, with a slash behind it."""
    left_out: tuple[str, ...] = ()
    """Columns that files do not have."""

    def __init__(self, *, partition_by: Sequence[str]) -> None:
        self.partition_by = tuple(partition_by)

    @abstractmethod
    def last_committed(self, query: str) -> int:
        """Return the number of the last batch of this query in the table; -1 where there is none."""

    @abstractmethod
    def root(self, rows: DataFrame) -> Root:
        """Return where tasks write the files of the table."""

    @abstractmethod
    def append(self, rows: DataFrame, written: Sequence[Any], query: str, number: int) -> None:
        """Add the files to the table in one commit that carries the number."""

    @abstractmethod
    def merge(self, rows: DataFrame, newest: pa.Table, key: Sequence[str], query: str, number: int) -> None:
        """Merge the newest row of each key, in one commit that carries the number."""


class TableWriter:
    """Writes each micro-batch to a table, as a function for `foreachBatch`. Number -1 is a batch without a repeat.

    Rows are appended as files, which the tasks write. With `key` they are updated, inserted and deleted by key: in each
    micro-batch the newest row of each key, by one column. `delete` is an SQL expression over the rows: where it is
    true, the row deletes its key. The driver takes these rows, so a batch should have no more than its memory holds
    (`maxOffsetsPerTrigger`, `maxBytesPerTrigger`).
    """

    def __init__(
        self, table: LakeTable, *, key: Sequence[str] = (), order_by: str = "offset", delete: str | None = None
    ) -> None:
        self._table = table
        self._key = tuple(key)
        self._order_by = order_by
        self._delete = delete

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._check(rows)
        query = query_id(rows.sparkSession) if number >= 0 else uuid.uuid4().hex
        if number < 0 or self._table.last_committed(query) < number:
            write = self._merge if self._key else self._append
            write(rows, query, number)

    def _check(self, rows: DataFrame) -> None:
        """Raise `ConfigError` for rows that cannot be written."""
        if self._key:
            missing = [name for name in (*self._key, self._order_by) if name not in rows.columns]
            if missing:
                found = ", ".join(rows.columns)
                raise ConfigError(f"key and order_by need {', '.join(missing)}, and the view has {found}")
            return
        types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        for name in self._table.partition_by:
            if types.get(name) not in _PARTITION_TYPES:
                found = f"a column of type {types[name]}" if name in types else f"none among {', '.join(types)}"
                wanted = f"a column of type {', '.join(_PARTITION_TYPES)}"
                raise ConfigError(f"partition_by {name}: found {found}, wanted {wanted}")

    def _append(self, rows: DataFrame, query: str, number: int) -> None:
        table = self._table
        root = table.root(rows)
        folder = f"{table.folder}ottla-{query}/{max(number, 0)}"
        write = partial(
            write_files,
            root=root,
            folder=folder,
            columns=arrow_columns(rows),
            partition_by=table.partition_by,
            left_out=table.left_out,
        )
        written = rows.mapInArrow(write, WRITTEN).collect()
        if written:
            table.append(rows, written, query, number)
            # Only now: of two drivers that write the same batch, the one whose commit fails must delete nothing.
            delete_files_but(root, folder, {row.path for row in written})

    def _merge(self, rows: DataFrame, query: str, number: int) -> None:
        """Merge the newest row of each key, with whether it deletes the key. Rows without a key are left out."""
        import pyarrow as pa
        from pyspark.sql import functions as f

        deletes = f.lit(False) if self._delete is None else f.coalesce(f.expr(self._delete), f.lit(False))
        keyed = rows.withColumn(DELETES, deletes).dropna(subset=list(self._key))
        grouped = keyed.groupBy(*self._key).agg(f.max_by(f.struct(*keyed.columns), self._order_by).alias("newest"))
        newest = grouped.select("newest.*").toArrow()
        if newest.num_rows:
            columns = arrow_columns(rows).append(pa.field(DELETES, pa.bool_()))
            self._table.merge(rows, newest.cast(columns), self._key, query, number)


def query_id(spark: SparkSession) -> str:
    """Return the id of the streaming query whose micro-batch this is."""
    found = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise ConfigError("found no streaming query, whose id the commits of a table carry")
    return str(found)


def arrow_columns(rows: DataFrame) -> pa.Schema:
    """Return the columns as Arrow's, with times in UTC. All may be null: files of other batches may lack them."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(rows.schema, timezone="UTC")])


def is_there_twice(table: str, number: int) -> ConfigError:
    """Return the error of a driver whose batch another one has committed meanwhile."""
    return ConfigError(
        f"{table}: batch {number} of this query is in the table already: another driver runs on the same"
        " checkpoint; stop one of them"
    )
