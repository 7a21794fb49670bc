"""One commit to an Iceberg table for each micro-batch of a query: what has been committed, and the table's columns.

A commit sets the batch's number as a property of the table, under the query's id, together with its snapshots. It is
made on the state of the table in which the number was read: a catalog refuses it when the table has got another
snapshot since, and then the number is read again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.spark.writing.table_writer import arrow_columns, is_there_twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIES: Final = 10
"""How often a commit is tried when other writers get ahead of it."""


class IcebergTable:
    """A table in a catalog. `catalog` is a name in PyIceberg's configuration, or the properties of a catalog."""

    def __init__(self, name: str, catalog: str | Mapping[str, Any], *, partition_by: Sequence[str]) -> None:
        try:
            import pyiceberg.io.pyarrow  # noqa: F401
        except ImportError as error:
            raise ConfigError("write_iceberg needs pyiceberg: pip install 'ottla[iceberg]'") from error
        if "." not in name:
            raise ConfigError(f"write_iceberg: found table {name!r}, wanted its namespace too: namespace.table")
        self.name = name
        self._catalog = catalog
        self._partition_by = list(partition_by)

    def last_committed(self, query: str) -> int:
        """Return the number of the last batch of this query in the table; -1 where there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return _number(self.load(), query)
        except NoSuchTableError:
            return -1

    def load(self) -> Any:
        """Return the table as it is now."""
        return self._loaded_catalog().load_table(self.name)

    def create(self, rows: DataFrame) -> Any:
        """Return the table, made with these columns if there is none."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        catalog = self._loaded_catalog()
        try:
            return catalog.load_table(self.name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(self.name, arrow_columns(rows)) as made, made.update_spec() as spec:
                for column in self._partition_by:
                    spec.add_identity(column)
        except TableAlreadyExistsError:
            pass  # another writer was first
        return catalog.load_table(self.name)

    def commit(self, rows: DataFrame, query: str, number: int, change: Callable[[Any, dict[str, str]], None]) -> None:
        """Make the change, a function of a transaction and the properties of its snapshots, in one commit that carries
        the number; -1 is a batch without a repeat. Raises `ConfigError` where the batch is in the table already."""
        from pyiceberg.exceptions import CommitFailedException

        for tries_left in reversed(range(_TRIES)):
            table = self.load()
            if 0 <= number <= _number(table, query):
                raise is_there_twice(self.name, number)
            transaction = _without_retries(table).transaction()
            try:
                self._evolve(transaction, rows)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="Delete operation did not match any records")
                    change(transaction, {"ottla.query": query, "ottla.batch": str(number)} if number >= 0 else {})
                if number >= 0:
                    transaction.set_properties({_property(query): str(number)})
                transaction.commit_transaction()
                return
            except CommitFailedException:
                if not tries_left:
                    raise
            except OSError as error:
                if 0 <= number <= self.last_committed(query):  # the driver that was first has deleted these files
                    raise is_there_twice(self.name, number) from error
                raise

    def _evolve(self, transaction: Any, rows: DataFrame) -> None:
        """Add the columns that the table has not, and widen those that are too narrow. Raises `ConfigError` for any
        other type, and for other partitions."""
        from pyiceberg.exceptions import ValidationError

        metadata = transaction.table_metadata
        schema = metadata.schema()
        spec = [(schema.find_column_name(each.source_id), str(each.transform)) for each in metadata.spec().fields]
        if spec != [(name, "identity") for name in self._partition_by]:
            found = [name if transform == "identity" else f"{transform}({name})" for name, transform in spec]
            raise ConfigError(f"{self.name}: found a table with partitions by {found}, wanted {self._partition_by}")
        try:
            with transaction.update_schema() as update:
                update.union_by_name(arrow_columns(rows))
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"{self.name}: {error}: a column's type only widens; give the column another name, or write to a new"
                " table"
            ) from error

    def _loaded_catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        if isinstance(self._catalog, str):
            return load_catalog(self._catalog)
        return load_catalog(**{"name": "default", **self._catalog})


def _property(query: str) -> str:
    return f"ottla.batch.{query}"


def _number(table: Any, query: str) -> int:
    return int(table.properties.get(_property(query), -1))


def _without_retries(table: Any) -> Any:
    """Return the table with a setting of its own: PyIceberg repeats a refused commit without a look at the number."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table
