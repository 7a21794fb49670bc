"""Delta tables: a micro-batch is appended, or merged by key, in one commit.

A commit carries the batch's number under the query's id, as one of Delta's application transactions. It fails when the
table has got another commit of that id since it was opened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.checkpoints.foreign_files import arrow_file_system
from ottla.spark.writing.table_files import Root
from ottla.spark.writing.table_writer import DELETES, LakeTable, arrow_columns, is_there_twice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class DeltaLakeTable(LakeTable):
    """The Delta table at a location. Raises `ConfigError` without the package `deltalake`."""

    def __init__(self, location: str, *, partition_by: Sequence[str] = ()) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise ConfigError("write_delta needs deltalake: pip install 'ottla[delta]'") from error
        super().__init__(partition_by=partition_by)
        self.left_out = self.partition_by  # Delta has their values in its log
        self._location = location

    def last_committed(self, query: str) -> int:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            found = DeltaTable(self._location).transaction_version(query)
        except TableNotFoundError:
            return -1
        return -1 if found is None else int(found)

    def root(self, rows: DataFrame) -> Root:
        return partial(arrow_file_system, self._location)

    def append(self, rows: DataFrame, written: Sequence[Any], query: str, number: int) -> None:
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(row.path, row.size, json.loads(row.partition), now_ms, True, json.dumps({"numRecords": row.rows}))
            for row in written
        ]
        table = self._opened(rows)
        with self._committed_once(table, query, number) as properties:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=list(self.partition_by) or None,
                commit_properties=properties,
            )

    def merge(self, rows: DataFrame, newest: pa.Table, key: Sequence[str], query: str, number: int) -> None:
        table = self._opened(rows)
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in rows.columns}
        is_same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in key)
        with self._committed_once(table, query, number) as properties:
            (
                table.merge(
                    source=newest,
                    predicate=is_same,
                    source_alias="source",
                    target_alias="target",
                    commit_properties=properties,
                )
                .when_matched_delete(predicate=f"source.{_quoted(DELETES)}")
                .when_matched_update(columns)
                .when_not_matched_insert(columns, predicate=f"NOT source.{_quoted(DELETES)}")
                .execute()
            )

    def _opened(self, rows: DataFrame) -> Any:
        """Return the table for rows of this schema: made if there is none, and with columns that it lacked.

        Raises `ConfigError` where it has other partitions, or a column of another type.
        """
        from deltalake import DeltaTable, Schema

        schema = Schema.from_arrow(arrow_columns(rows))
        DeltaTable.create(self._location, schema, mode="ignore", partition_by=list(self.partition_by) or None)
        table = DeltaTable(self._location)
        self._evolve(table, schema)
        return table

    @contextmanager
    def _committed_once(self, table: Any, query: str, number: int) -> Iterator[Any]:
        """Yield the properties of the commit that is made inside. Number -1 is a batch without a repeat.

        Raises `ConfigError` where the batch is in the table already, or gets there meanwhile.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        twice = is_there_twice(self._location, number)
        # On the very state of the table that the commit begins with: another commit of the batch makes this one fail.
        found = table.transaction_version(query)
        if number >= 0 and found is not None and found >= number:
            raise twice
        try:
            yield CommitProperties(app_transactions=[Transaction(query, number)] if number >= 0 else [])
        except CommitFailedError as error:
            if number >= 0 and self.last_committed(query) >= number:
                raise twice from error
            raise

    def _evolve(self, table: Any, schema: Any) -> None:
        """Add the columns that the table has not. Raises `ConfigError` for another type, or other partitions."""
        found, wanted = list(table.metadata().partition_columns), list(self.partition_by)
        if found != wanted:
            raise ConfigError(f"{self._location}: found a table with partitions by {found}, wanted {wanted}")
        known = {field.name: field.type for field in table.schema().fields}
        for field in schema.fields:
            if field.name in known and known[field.name] != field.type:
                raise ConfigError(
                    f"{self._location}: found column {field.name} with {known[field.name]}, wanted {field.type}: a"
                    " table's type does not change; give the column another name, or write to a new table"
                )
        new = [field for field in schema.fields if field.name not in known]
        if new:
            table.alter.add_columns(new)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
