"""A handful of records, one by one: numpy's and Arrow's calls cost as much for one record as for a thousand.

A record that trickles in comes alone, and its way to a handler is what this shortens. Whatever is unusual is left to
the columns' way (`decode.py`), which refuses it with its reasons: what is given here is what that way gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from ottla.columnar.arrays.schema import FIELDS, arrow_schema
from ottla.columnar.arrays.varints import Bytes8
from ottla.columnar.reading.inflate import Group
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla_wire.protocol import ProtocolError
from ottla_wire.records import BATCH_OVERHEAD, BatchHeader, Row, iter_plain_rows

FEW: Final = 16
"""From about so many records on columns cost less."""

_MOST_BYTES: Final = 64 * 1024
"""More bytes than this are not copied twice."""

_LARGEST_MS: Final = ((1 << 63) - 1) // 1_000
_schema = lru_cache(arrow_schema)

SmallRow = tuple[Row, BatchHeader, Segment]
"""A record, the header of its batch, and where that was fetched."""

_VALUES: Final[dict[str, Callable[[SmallRow], Any]]] = {
    "key": lambda place: place[0][2],
    "value": lambda place: place[0][3],
    "topic": lambda place: place[2].topic,
    "partition": lambda place: place[2].partition,
    "offset": lambda place: place[0][0],
    "timestamp": lambda place: place[0][1] * 1_000,
    "timestampType": lambda place: int(place[1].timestamp_type),
    "headers": lambda place: [{"key": key, "value": value} for key, value in place[0][4]],
}


def is_small(headers: Iterable[BatchHeader]) -> bool:
    """Return whether these headers announce few records."""
    return sum([header.record_count for header in headers]) <= FEW


def small_group_rows(group: Group, limits: DecodeLimits) -> list[SmallRow] | None:
    """Return the wanted records of the group; None where they are many, large, or not as they should be."""
    if not is_small(group.batches.headers):
        return None
    return _rows(group.batches, [group.buffer[start:end] for start, end in group.spans], limits)


def rows_in_place(batches: FetchedBatches, limits: DecodeLimits) -> list[SmallRow] | None:
    """Return the wanted records of uncompressed batches; None if a batch is compressed, or as in `small_group_rows`."""
    records = 0
    payloads: list[memoryview] = []
    for header, segment, at in zip(batches.headers, batches.segments, batches.positions, strict=True):
        records += header.record_count
        if records > FEW or header.compression:
            return None
        payloads.append(segment.data[at + BATCH_OVERHEAD : at + header.size_in_bytes])
    return _rows(batches, payloads, limits)


def small_group_to_arrow(group: Group, columns: Sequence[str], limits: DecodeLimits) -> pa.RecordBatch | None:
    """Return the wanted records of the group as columns; None as `small_group_rows` gives it."""
    wanted = small_group_rows(group, limits)
    if wanted is None:
        return None
    arrays = [pa.array([_VALUES[name](place) for place in wanted], FIELDS[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(tuple(columns)))


def _rows(
    batches: FetchedBatches, payloads: Sequence[Bytes8 | memoryview], limits: DecodeLimits
) -> list[SmallRow] | None:
    left_bytes = _MOST_BYTES
    wanted: list[SmallRow] = []
    for payload, header, segment in zip(payloads, batches.headers, batches.segments, strict=True):
        left_bytes -= len(payload)
        if left_bytes < 0 or not 1 <= header.record_count <= FEW:
            return None
        try:
            (rows,) = iter_plain_rows(payload.tobytes(), header)
        except ProtocolError:
            return None
        first, last = header.base_offset, header.last_offset
        start, end = segment.start, segment.end
        for row in rows:
            offset = row[0]
            if not first <= offset <= last:
                return None
            if offset < start or (end is not None and offset >= end):
                continue
            if not -_LARGEST_MS <= row[1] <= _LARGEST_MS or (row[4] and not _has_plain_headers(row, limits)):
                return None
            wanted.append((row, header, segment))
    return wanted


def _has_plain_headers(row: Row, limits: DecodeLimits) -> bool:
    headers = row[4]
    return len(headers) <= limits.record_headers and all(name.isascii() for name, _ in headers)
