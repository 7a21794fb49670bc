"""Frames for columns handlers: the decoded values in the class that the annotation names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ottla.app.handler.binding import BindingError
from ottla.columnar.serving.rows import ArrowRows, rows_of
from ottla.errors import ConfigError
from ottla.failures.retry_headers import original_of
from ottla.records import TopicPartition

_FORMS: Final = {
    ("pyarrow", "RecordBatch"): "arrow",
    ("pyarrow", "Table"): "table",
    ("polars", "DataFrame"): "polars",
    ("pandas", "DataFrame"): "pandas",
}
_SHORT: Final = {"pyarrow": "pa", "polars": "pl", "pandas": "pd"}

_ONLY_BYTES: Final = pa.schema([("value", pa.binary())])


class Frame:
    """One batch for its handler. `data` is made when it is asked for, in the form that was asked for.

    This is what middlewares see as the record.
    """

    __slots__ = ("_data", "_keys", "_make", "_originals", "rows", "topic_partition", "values")

    def __init__(
        self,
        rows: ArrowRows,
        values: pa.Array,
        keys: pa.Array | None,
        topic_partition: TopicPartition,
        make: Callable[[], Any],
    ) -> None:
        self.rows = rows
        """The rows as they came, of which they were decoded; out of a retry topic with its positions."""
        self._originals: ArrowRows | None = None
        self.values = values
        """The decoded values: one Arrow array."""
        self._keys = keys
        self.topic_partition = topic_partition
        self._make = make
        self._data: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def data(self) -> Any:
        """Return the handler's argument."""
        if self._data is None:
            self._data = self._make()
        return self._data

    @property
    def keys(self) -> pa.Array:
        """The decoded keys, or the rows' own keys if they need no decoding."""
        return self.rows.column("key") if self._keys is None else self._keys

    @property
    def offsets(self) -> pa.Array:
        return self.originals.column("offset")

    @property
    def timestamps(self) -> pa.Array:
        return self.originals.column("timestamp")

    @property
    def headers(self) -> pa.Array:
        return self.originals.column("headers")

    @property
    def originals(self) -> ArrowRows:
        """The rows as they were in their own topic: position, time and headers, also out of a retry topic."""
        if self._originals is None:
            is_copy = self.rows.partition.topic != self.topic_partition.topic
            records = [original_of(record) for record in self.rows] if is_copy else self.rows
            self._originals = rows_of(records, self.topic_partition)
        return self._originals

    def column(self, name: str) -> pa.Array:
        """Return a column beside the value's own."""
        if name == "partition":
            return pa.array([self.topic_partition.partition] * len(self), pa.int32())
        if name == "key":
            return self.keys
        return self.originals.column(name)


def form_of(hint: Any) -> str | None:
    """Return the form that an annotation requests; None for an unsupported one."""
    if hint is Any:
        return "arrow"
    if isinstance(hint, str):
        package, _, name = hint.rpartition(".")
        found = [form for (of, kind), form in _FORMS.items() if kind == name and package in (of, _SHORT[of], "")]
        return found[0] if len(found) == 1 else None
    place = (getattr(hint, "__module__", "").split(".")[0], getattr(hint, "__name__", ""))
    return _FORMS.get(place)


def check_columns(name: str, kind: pa.DataType, columns: Sequence[str]) -> None:
    """Raise `ConfigError` if two columns have one name."""
    own = [field.name for field in kind] if pa.types.is_struct(kind) else ["value"]
    for column in columns:
        if column in own:
            raise ConfigError(
                f"{name}: columns={list(columns)}: the value has a field {column!r} of its own; "
                f"take a parameter of the handler for it: keys, offsets, timestamps, headers"
            )


def data_of(frame: Frame, form: str, columns: Sequence[str], *, is_bytes: bool = False) -> Any:
    """Return the value's columns, and those that were asked for, as a frame. `is_bytes`: the values are known to be
    bytes."""
    values = frame.values
    if is_bytes and form == "arrow" and not columns:
        return pa.RecordBatch.from_arrays([values], schema=_ONLY_BYTES)
    if pa.types.is_struct(values.type):
        # flatten, not the children: a row without a value is null in every column.
        arrays, names = values.flatten(), [field.name for field in values.type]
    else:
        arrays, names = [values], ["value"]
    arrays = [*arrays, *(frame.column(name) for name in columns)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[*names, *columns])
    if form == "arrow":
        return batch
    table = pa.Table.from_batches([batch])
    if form == "table":
        return table
    if form == "pandas":
        return table.to_pandas()
    try:
        polars = importlib.import_module("polars")
    except ImportError as error:
        raise BindingError(f"the annotation says polars.DataFrame, and polars is not installed: {error}") from error
    return polars.from_arrow(table)
