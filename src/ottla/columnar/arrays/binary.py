"""Arrow arrays from numpy positions: the few constructions that decode and encode share."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ottla.columnar.arrays.varints import Bytes8, Ints, varint_widths, write_varints

_BINARY: Final = pa.binary()


def primitive_array(kind: pa.DataType, values: np.ndarray[Any, Any]) -> pa.Array:
    """Return a numpy array as an Arrow array without nulls, not copied."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def binary_of_few(values: Sequence[bytes | None]) -> pa.Array:
    """Return a few values as a binary column, in a third of the time of `pyarrow.array`, which also releases the
    interpreter to other threads."""
    if len(values) == 1 and values[0] is not None:
        return pa.Array.from_buffers(_BINARY, 1, [None, _edges_of_one(len(values[0])), pa.py_buffer(values[0])])
    edges, valid = array("i", [0]), 0
    for row, value in enumerate(values):
        if value is None:
            edges.append(edges[row])
        else:
            valid |= 1 << row
            edges.append(edges[row] + len(value))
    count = len(values)
    is_null_free = valid == (1 << count) - 1
    bitmap = None if is_null_free else pa.py_buffer(valid.to_bytes((count + 7) // 8, "little"))
    data = b"".join([value for value in values if value is not None])
    return pa.Array.from_buffers(_BINARY, count, [bitmap, pa.py_buffer(edges), pa.py_buffer(data)])


@lru_cache(maxsize=256)
def _edges_of_one(size: int) -> pa.Buffer:
    """Return where the only value of a column begins and ends. Trickling values have few sizes."""
    return pa.py_buffer(array("i", [0, size]).tobytes())


def binary_array(buffer: Bytes8, starts: Ints, ends: Ints, nulls: NDArray[np.bool_]) -> pa.Array:
    """Return the slices `buffer[start:end]` as a binary column; rows marked in `nulls` are null.

    The slices lie in the buffer (of at most 2 GiB), in order, and do not overlap. Arrow does not check that.
    """
    if len(starts) and not nulls.any():
        width = int(ends[0] - starts[0])
        if width > 0 and (ends - starts == width).all():
            return _of_one_width(buffer, starts, width)
    edges = np.empty(2 * len(starts), dtype=np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    return binary_between(buffer, edges, nulls)


def _of_one_width(buffer: Bytes8, starts: Ints, width: int) -> pa.Array:
    """Return slices of one length, as keys often are: numpy copies them in half the time."""
    windows = np.ndarray((len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer, strides=(1,))
    data = windows[starts].view(np.uint8)
    edges = np.arange(len(starts) + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(edges), pa.py_buffer(data)])


def binary_between(buffer: Bytes8, edges: NDArray[np.int32], nulls: NDArray[np.bool_]) -> pa.Array:
    """Return the same, for slices whose starts and ends alternate in `edges`.

    One Arrow array over the whole buffer holds the slices *and* the gaps between them, without a copy; taking every
    second element of it copies just the slices, at C speed.
    """
    count = len(nulls)
    if not count:
        return pa.array([], pa.binary())
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(buffer)])
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
    if nulls.any():
        return with_gaps.take(pa.array(wanted, mask=nulls))
    return with_gaps.take(primitive_array(pa.int32(), wanted))


def constant_string_array(text: str, count: int) -> pa.Array:
    """Return an array with `text`, `count` times."""
    raw = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw * count)])


def as_text(values: pa.Array) -> pa.Array:
    """Return binary as string; bytes that are not UTF-8 are escaped, never an error."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode("utf-8", "backslashreplace") for v in values.to_pylist()], pa.string()
        )


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def binary_parts(values: pa.Array) -> tuple[Ints, Bytes8, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return (offsets with one more entry than rows, data, nulls) of a binary or string array, slices respected."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=len(values) + 1, offset=values.offset * 4)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    nulls = np.zeros(len(values), dtype=np.bool_)
    if values.null_count:
        nulls = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    return offsets.astype(np.int64), data, nulls


def varint_column(first: Ints, *others: Ints | None) -> pa.Array:
    """Return each row's varints one behind the other, as one binary column; None stands for a zero byte
    (attributes)."""
    columns = (first, *others)
    rows = len(first)
    widths = [np.ones(rows, dtype=np.int64) if column is None else varint_widths(column) for column in columns]
    edges = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.sum(widths, axis=0), out=edges[1:])
    out = np.zeros(int(edges[-1]), dtype=np.uint8)
    position = edges[:-1].copy()
    for column, width in zip(columns, widths, strict=True):
        if column is not None:
            write_varints(out, position, column)
        position += width
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(out)])
