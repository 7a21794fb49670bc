"""Iceberg tables: a micro-batch is appended, or merged by key, in one commit.

A commit sets the batch's number as a property of the table, under the query's id, together with its snapshots. It is
made on the state of the table in which the number was read: a catalog refuses it when the table has got another
snapshot since, and then the number is read again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.spark.writing.table_files import Root
from ottla.spark.writing.table_writer import DELETES, LakeTable, arrow_columns, is_there_twice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_TRIES: Final = 10
"""How often a commit is tried when other writers get ahead of it."""


class IcebergTable(LakeTable):
    """A table in a catalog. `catalog` is a name in PyIceberg's configuration, or the properties of a catalog."""

    folder = "data/"  # where Iceberg's own writers have the files of a table

    def __init__(self, name: str, *, catalog: str | Mapping[str, Any], partition_by: Sequence[str] = ()) -> None:
        try:
            import pyiceberg.io.pyarrow  # noqa: F401
        except ImportError as error:
            raise ConfigError("write_iceberg needs pyiceberg: pip install 'ottla[iceberg]'") from error
        if "." not in name:
            raise ConfigError(f"write_iceberg: found table {name!r}, wanted its namespace too: namespace.table")
        super().__init__(partition_by=partition_by)
        self._name = name
        self._catalog = catalog

    def last_committed(self, query: str) -> int:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return _number(self._loaded_catalog().load_table(self._name), query)
        except NoSuchTableError:
            return -1

    def root(self, rows: DataFrame) -> Root:
        from pyarrow.fs import LocalFileSystem
        from pyiceberg.io.pyarrow import PyArrowFileIO

        table = self._created(rows)
        scheme, host, path = PyArrowFileIO.parse_location(table.location(), table.io.properties)
        file_system = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, host)
        if file_system.type_name == "local":  # PyIceberg's own class, and executors may lack PyIceberg
            file_system = LocalFileSystem()
        return partial(_given, file_system, path)

    def append(self, rows: DataFrame, written: Sequence[Any], query: str, number: int) -> None:
        def add(transaction: Any, properties: dict[str, str]) -> None:
            location = transaction.table_metadata.location
            # Their names have an id: no snapshot can have them, and none needs to be searched.
            paths = [f"{location}/{row.path}" for row in written]
            transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)

        self._commit(rows, query, number, add)

    def merge(self, rows: DataFrame, newest: pa.Table, key: Sequence[str], query: str, number: int) -> None:
        """Files with rows of these keys are written again."""
        import pyarrow.compute as pc

        there = newest.filter(pc.invert(newest.column(DELETES))).drop_columns([DELETES])

        def merge(transaction: Any, properties: dict[str, str]) -> None:
            transaction.delete(_filter_of(newest, key), snapshot_properties=properties)
            if there.num_rows:
                transaction.append(there, snapshot_properties=properties)

        self._created(rows)
        self._commit(rows, query, number, merge)

    def _created(self, rows: DataFrame) -> Any:
        """Return the table, made with these columns if there is none."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        catalog = self._loaded_catalog()
        try:
            return catalog.load_table(self._name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(self._name, arrow_columns(rows)) as made, made.update_spec() as spec:
                for column in self.partition_by:
                    spec.add_identity(column)
        except TableAlreadyExistsError:
            pass  # another writer was first
        return catalog.load_table(self._name)

    def _commit(self, rows: DataFrame, query: str, number: int, change: Callable[[Any, dict[str, str]], None]) -> None:
        """Make the change, a function of a transaction and the properties of its snapshots, in one commit that carries
        the number; -1 is a batch without a repeat. Raises `ConfigError` where the batch is in the table already."""
        from pyiceberg.exceptions import CommitFailedException

        for tries_left in reversed(range(_TRIES)):
            table = self._loaded_catalog().load_table(self._name)
            if 0 <= number <= _number(table, query):
                raise is_there_twice(self._name, number)
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
                    raise is_there_twice(self._name, number) from error
                raise

    def _evolve(self, transaction: Any, rows: DataFrame) -> None:
        """Add the columns that the table has not, and widen those that are too narrow. Raises `ConfigError` for any
        other type, and for other partitions."""
        from pyiceberg.exceptions import ValidationError

        metadata = transaction.table_metadata
        schema = metadata.schema()
        spec = [(schema.find_column_name(each.source_id), str(each.transform)) for each in metadata.spec().fields]
        wanted = list(self.partition_by)
        if spec != [(name, "identity") for name in wanted]:
            found = [name if transform == "identity" else f"{transform}({name})" for name, transform in spec]
            raise ConfigError(f"{self._name}: found a table with partitions by {found}, wanted {wanted}")
        try:
            with transaction.update_schema() as update:
                update.union_by_name(arrow_columns(rows))
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"{self._name}: {error}: a column's type only widens; give the column another name, or write to a new"
                " table"
            ) from error

    def _loaded_catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        if isinstance(self._catalog, str):
            return load_catalog(self._catalog)
        return load_catalog(**{"name": "default", **self._catalog})


def _given(file_system: Any, path: str) -> tuple[Any, str]:
    return file_system, path


def _filter_of(newest: pa.Table, key: Sequence[str]) -> Any:
    """Return the filter of the rows that have one of these keys."""
    from pyiceberg import expressions

    e: Any = expressions  # its type hints describe models, not how they are made
    if len(key) == 1:
        return e.In(key[0], set(newest.column(key[0]).to_pylist()))
    each = [
        e.And(*(e.EqualTo(name, value) for name, value in row.items())) for row in newest.select(list(key)).to_pylist()
    ]
    return each[0] if len(each) == 1 else e.Or(*each)


def _property(query: str) -> str:
    return f"ottla.batch.{query}"


def _number(table: Any, query: str) -> int:
    return int(table.properties.get(_property(query), -1))


def _without_retries(table: Any) -> Any:
    """Return the table with a setting of its own: PyIceberg repeats a refused commit without a look at the number."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table
