"""One commit to a Delta table for each micro-batch of a query: what has been committed, and the table's columns.

A commit carries the batch's number under the query's id, as one of Delta's application transactions. It fails when the
table has got another commit of that id since it was opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.writing.table_writer import arrow_columns, is_there_twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_installed() -> None:
    """Raise `ConfigError` without the package `deltalake`."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise ConfigError("write_delta needs deltalake: pip install 'ottla[delta]'") from error


def last_committed(location: str, app: str) -> int:
    """Return the number of the last batch of this query in the table; -1 where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        found = DeltaTable(location).transaction_version(app)
    except TableNotFoundError:
        return -1
    return -1 if found is None else int(found)


def opened(location: str, rows: DataFrame, partition_by: Sequence[str]) -> Any:
    """Return the table for rows of this schema: made if there is none, and with columns that it lacked.

    Raises `ConfigError` where it has other partitions, or a column of another type.
    """
    from deltalake import DeltaTable, Schema

    schema = Schema.from_arrow(arrow_columns(rows))
    DeltaTable.create(location, schema, mode="ignore", partition_by=list(partition_by) or None)
    table = DeltaTable(location)
    evolve(table, schema, location, list(partition_by))
    return table


@contextmanager
def committed_once(table: Any, location: str, app: str, number: int) -> Iterator[Any]:
    """Yield the properties of the commit that is made inside. Number -1 is a batch without a repeat.

    Raises `ConfigError` where the batch is in the table already, or gets there meanwhile.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    twice = is_there_twice(location, number)
    # On the very state of the table that the commit begins with: another commit of the batch makes this one fail.
    found = table.transaction_version(app)
    if number >= 0 and found is not None and found >= number:
        raise twice
    try:
        yield CommitProperties(app_transactions=[Transaction(app, number)] if number >= 0 else [])
    except CommitFailedError as error:
        if number >= 0 and last_committed(location, app) >= number:
            raise twice from error
        raise


def evolve(table: Any, schema: Any, location: str, partition_by: list[str]) -> None:
    """Add the columns that the table has not. Raises `ConfigError` for another type, or other partitions."""
    found = list(table.metadata().partition_columns)
    if found != partition_by:
        raise ConfigError(f"{location}: found a table with partitions by {found}, wanted {partition_by}")
    known = {field.name: field.type for field in table.schema().fields}
    for field in schema.fields:
        if field.name in known and known[field.name] != field.type:
            raise ConfigError(
                f"{location}: found column {field.name} with {known[field.name]}, wanted {field.type}: a table's type"
                " does not change; give the column another name, or write to a new table"
            )
    new = [field for field in schema.fields if field.name not in known]
    if new:
        table.alter.add_columns(new)
