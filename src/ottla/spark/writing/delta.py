"""Delta tables: a micro-batch is appended, or merged by key, in one commit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.spark.checkpoints.foreign_files import arrow_file_system
from ottla.spark.writing.delta_commits import check_installed, committed_once, last_committed, opened
from ottla.spark.writing.table_files import Root
from ottla.spark.writing.table_writer import DELETES, TableAppender, TableMerger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class DeltaWriter(TableAppender):
    """Appends each micro-batch to a Delta table."""

    def __init__(self, location: str, *, partition_by: Sequence[str] = ()) -> None:
        check_installed()
        super().__init__(partition_by=partition_by)
        self._location = location

    def _last_committed(self, query: str) -> int:
        return last_committed(self._location, query)

    @property
    def _left_out(self) -> tuple[str, ...]:
        return self._partition_by  # Delta has their values in its log

    def _root(self, rows: DataFrame) -> Root:
        return partial(arrow_file_system, self._location)

    def _commit(self, rows: DataFrame, written: Sequence[Any], query: str, number: int) -> None:
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(row.path, row.size, json.loads(row.partition), now_ms, True, json.dumps({"numRecords": row.rows}))
            for row in written
        ]
        table = opened(self._location, rows, self._partition_by)
        with committed_once(table, self._location, query, number) as properties:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=list(self._partition_by) or None,
                commit_properties=properties,
            )


class DeltaMerger(TableMerger):
    """Merges each micro-batch into a Delta table by key."""

    def __init__(
        self,
        location: str,
        *,
        key: Sequence[str],
        order_by: str,
        delete: str | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        check_installed()
        super().__init__(key=key, order_by=order_by, delete=delete, partition_by=partition_by)
        self._location = location

    def _last_committed(self, query: str) -> int:
        return last_committed(self._location, query)

    def _merge(self, rows: DataFrame, newest: pa.Table, query: str, number: int) -> None:
        table = opened(self._location, rows, self._partition_by)
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in rows.columns}
        is_same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self._key)
        with committed_once(table, self._location, query, number) as properties:
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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
