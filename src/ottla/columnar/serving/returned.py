"""What a handler of columns returned or yielded: rows to write, and beside them what any handler may say.

Rows are what speaks Arrow: a record batch, a table, a reader, a Polars or pandas frame, a DuckDB result. A handler with
`yield` is run to its end before anything is written; what it returns at its end is its outcome.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.app.delivery.handler_result import mistake
from ottla.app.handler.binding import Binding, Call
from ottla.app.handler.handler_context import Context
from ottla.columnar.writing.writer import Rows, batches_of, check_columns
from ottla.errors import InputError
from ottla.producer.bulk import Outgoing


class Yielded(NamedTuple):
    """The rows that a generator handler yielded."""

    rows: list[Any]
    returned: Any


class ColumnOutput(NamedTuple):
    """Rows to write."""

    topic: str
    rows: pa.RecordBatch

    def records(self) -> list[Outgoing]:
        """Return its records: for tests without a broker."""
        return [
            Outgoing(
                _bytes(row["value"]),
                _bytes(row.get("key")),
                [(header["key"], header["value"]) for header in row.get("headers") or ()],
                row.get("partition"),
                _millis(row.get("timestamp")),
            )
            for row in self.rows.to_pylist()
        ]


def with_rows(binding: Binding) -> Binding:
    """Return the binding of a handler that may yield rows: they are all there when the call returns."""
    if binding.is_async:
        return binding
    return replace(binding, call=_to_its_end(binding.call))


def split(returned: Any) -> tuple[list[Any], Any]:
    """Return (rows to write, the handler's outcome)."""
    if isinstance(returned, Yielded):
        return returned.rows, returned.returned
    if is_rows(returned):
        return [returned], None
    if isinstance(returned, list | tuple) and returned and all(map(is_rows, returned)):
        return list(returned), None
    return [], returned


def is_rows(value: Any) -> bool:
    """Return whether a value implements Arrow's interface for rows."""
    if isinstance(value, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        return True
    return hasattr(type(value), "__arrow_c_stream__") and not isinstance(value, pa.ChunkedArray)


def outputs_of(topic: str, frames: Sequence[Rows]) -> list[ColumnOutput]:
    """Return the outputs. Raises `InputError` for rows that no topic takes."""
    return [ColumnOutput(topic, batch) for frame in frames for batch in _batches(frame) if batch.num_rows]


def _batches(frame: Any) -> list[pa.RecordBatch]:
    try:
        batches = list(batches_of(frame))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise InputError(f"found {type(frame).__name__}, wanted rows: {error}") from error
    for batch in batches:
        check_columns(batch.schema)
    return batches


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _millis(timestamp: datetime | int | None) -> int | None:
    return round(timestamp.timestamp() * 1_000) if isinstance(timestamp, datetime) else timestamp


def _to_its_end(inner: Call) -> Callable[[Any, Context], Any]:
    def call(subject: Any, context: Context) -> Any:
        returned = inner(subject, context)
        return _run(returned) if inspect.isgenerator(returned) else returned

    return call


def _run(generator: Generator[Any, Any, Any]) -> Yielded:
    rows: list[Any] = []
    while True:
        try:
            given = next(generator)
        except StopIteration as end:
            return Yielded(rows, end.value)
        if not is_rows(given):
            generator.close()
            return Yielded(
                [], mistake(f"the handler yielded {given!r}, wanted rows: an Arrow batch or table, or a frame")
            )
        rows.append(given)
