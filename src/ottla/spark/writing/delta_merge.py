"""Rows of a Delta table by key: a micro-batch updates, inserts and deletes them in one commit.

Only the newest row of each key goes on, in the order of one column. The driver takes these rows and merges them, so a
batch should have no more than its memory holds (`maxOffsetsPerTrigger`, `maxBytesPerTrigger`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError
from ottla.spark.writing.delta_commits import check_installed, committed_once, last_committed, opened, query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DELETES: Final = "_ottla_deletes"


class DeltaMerger:
    """Merges each micro-batch into a table, as a function for `foreachBatch`. Number -1 is a batch without a repeat.

    `delete` is an SQL expression over the rows: where it is true, the row deletes its key.
    """

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
        self._location = location
        self._key = tuple(key)
        self._order_by = order_by
        self._delete = delete
        self._partition_by = tuple(partition_by)

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._check_columns(rows)
        app = query_id(rows.sparkSession) if number >= 0 else uuid.uuid4().hex
        if number >= 0 and last_committed(self._location, app) >= number:
            return
        newest = self._newest(rows).toArrow()
        if not newest.num_rows:
            return
        table = opened(self._location, rows, self._partition_by)
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in rows.columns}
        is_same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self._key)
        with committed_once(table, self._location, app, number) as properties:
            (
                table.merge(
                    source=newest,
                    predicate=is_same,
                    source_alias="source",
                    target_alias="target",
                    commit_properties=properties,
                )
                .when_matched_delete(predicate=f"source.{_quoted(_DELETES)}")
                .when_matched_update(columns)
                .when_not_matched_insert(columns, predicate=f"NOT source.{_quoted(_DELETES)}")
                .execute()
            )

    def _check_columns(self, rows: DataFrame) -> None:
        missing = [name for name in (*self._key, self._order_by) if name not in rows.columns]
        if missing:
            raise ConfigError(
                f"write_delta: key and order_by need {', '.join(missing)}, and the view has {', '.join(rows.columns)}"
            )

    def _newest(self, rows: DataFrame) -> DataFrame:
        """Return the newest row of each key, with whether it deletes the key. Rows without a key are left out."""
        from pyspark.sql import functions as f

        deletes = f.lit(False) if self._delete is None else f.coalesce(f.expr(self._delete), f.lit(False))
        keyed = rows.withColumn(_DELETES, deletes).dropna(subset=list(self._key))
        newest = keyed.groupBy(*self._key).agg(f.max_by(f.struct(*keyed.columns), self._order_by).alias("newest"))
        return newest.select("newest.*")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
