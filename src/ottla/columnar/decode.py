"""Fetched bytes to Arrow columns, without a Python object per record.

`scan` takes what one Fetch response holds of one or many partitions, `Scan.decode` gives one Arrow record batch: all
record batches of all partitions are decoded in the same numpy calls, because a call costs the same for ten records as
for ten thousand. Python loops run per record batch, never per record (the exception is in `walk.py`,
where lengths differ).

What a consumer must do with a log is done here: the CRC is checked, control batches are passed over, aborted
transactions are dropped when reading committed, a batch cut off at the end of a fetch is left for the next fetch, and
records before the wanted offset (a fetch starts at a batch, not at a record) are trimmed. Offsets may have gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ottla.columnar.binary import binary_array, constant_string_array, primitive_array
from ottla.columnar.headers import decode_headers
from ottla.columnar.schema import ALL_COLUMNS, arrow_schema
from ottla.columnar.varints import Bytes8, Ints, read_varints
from ottla.columnar.walk import record_bodies
from ottla.wire_client.aborted import AbortedFilter, AbortedTransaction
from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.ranges import Isolation
from ottla_wire.protocol import ProtocolError
from ottla_wire.records import BATCH_OVERHEAD, BatchHeader, CompressionType, check_crc, decompress, parse_header

MAX_BATCH_BYTES = 1 << 30
"""A decompressed batch larger than this is refused: Arrow's binary columns hold 2 GiB, and so does no sane batch."""

_SIZE_PREFIX = 12  # base offset and length: enough to know how long a batch is
_MAGIC_AT = 16


@dataclass(slots=True, kw_only=True)
class Segment:
    """What one Fetch response holds of one partition: whole batches and maybe a part of one more.

    `start` is the first offset wanted, `end` the first one not wanted (None: everything). `aborted` are the aborted
    transactions that the broker listed beside the data.
    """

    topic: str
    partition: int
    data: memoryview
    start: int
    end: int | None = None
    aborted: Sequence[AbortedTransaction] = field(default_factory=tuple)


class Scan:
    """Segments whose batches have been found and checked, but not opened yet.

    Between the two steps a reader can already ask for what follows: `next_offsets[i]` is where segment i goes on. A
    segment that held no whole batch has its own start there.
    """

    __slots__ = ("_found", "_segments", "next_offsets")

    def __init__(self, segments: Sequence[Segment], found: _Batches, next_offsets: tuple[int, ...]) -> None:
        self._segments = segments
        self._found = found
        self.next_offsets = next_offsets

    @property
    def has_records(self) -> bool:
        """Whether any batch may hold wanted records."""
        return bool(self._found.headers)

    def decode(self, columns: Sequence[str] = ALL_COLUMNS) -> pa.RecordBatch:
        """All wanted records, segment after segment, as one Arrow record batch with these columns."""
        found = self._found
        if not found.headers:
            return pa.RecordBatch.from_pylist([], schema=arrow_schema(columns))
        buffer, spans = _one_buffer(found, self._segments)
        bodies, counts = _all_bodies(buffer, spans, found.headers)
        return _columns(buffer, bodies, counts, found, self._segments, columns)


def scan(
    segments: Sequence[Segment], *, isolation: Isolation = Isolation.READ_COMMITTED, check_crcs: bool = True
) -> Scan:
    """Find and check the batches of these segments. Costs per batch, and a CRC over the bytes."""
    found = _Batches()
    next_offsets = [_collect(s, number, found, isolation, check_crcs) for number, s in enumerate(segments)]
    return Scan(segments, found, tuple(next_offsets))


class _Batches:
    """The record batches to decode, in order, each with its segment's number and position in the segment's data."""

    __slots__ = ("headers", "owners", "positions")

    def __init__(self) -> None:
        self.headers: list[BatchHeader] = []
        self.owners: list[int] = []
        self.positions: list[int] = []


def _collect(segment: Segment, number: int, found: _Batches, isolation: Isolation, check_crcs: bool) -> int:
    """Note the batches of one segment that hold wanted records; answer the offset where the next fetch goes on."""
    data = segment.data
    size = len(data)
    position = 0
    next_offset = segment.start
    drop_aborted = AbortedFilter(segment.aborted) if isolation is Isolation.READ_COMMITTED else None
    while position + _SIZE_PREFIX <= size:
        if position + _MAGIC_AT < size and data[position + _MAGIC_AT] < 2:
            raise CorruptBatch(
                f"{_place(segment, position)}: message format {data[position + _MAGIC_AT]} is not read;"
                " Kafka 0.11 and later write format 2, and Kafka 4 no longer reads older ones"
            )
        if position + BATCH_OVERHEAD > size:
            break
        header = parse_header(data, position)
        if header.size_in_bytes < BATCH_OVERHEAD or header.record_count < 0:
            raise CorruptBatch(f"{_place(segment, position)}: the batch header cannot be right: {header}")
        if position + header.size_in_bytes > size:
            break  # cut off at the end of the fetch
        if segment.end is not None and header.base_offset >= segment.end:
            next_offset = max(next_offset, segment.end)
            break
        if check_crcs and not check_crc(data, position, header):
            raise CorruptBatch(f"{_place(segment, position)}: the batch at offset {header.base_offset} fails its CRC")
        shown = drop_aborted is None or drop_aborted.shows(data, position, header)
        if shown and not header.is_control and header.record_count > 0 and header.last_offset >= segment.start:
            found.headers.append(header)
            found.owners.append(number)
            found.positions.append(position)
        next_offset = max(next_offset, header.next_offset)
        position += header.size_in_bytes
    return next_offset if segment.end is None else min(next_offset, max(segment.end, segment.start))


def _one_buffer(found: _Batches, segments: Sequence[Segment]) -> tuple[Bytes8, list[tuple[int, int]]]:
    """One buffer that holds all payloads in order, and where each payload lies in it.

    Payloads that are not compressed stay where they are when all segments are slices of one response frame.
    """
    frame = segments[found.owners[0]].data.obj
    in_place = all(header.compression == CompressionType.NONE for header in found.headers) and all(
        segments[owner].data.obj is frame for owner in set(found.owners)
    )
    spans: list[tuple[int, int]] = []
    if in_place:
        buffer = np.frombuffer(memoryview(frame), dtype=np.uint8)
        base = buffer.__array_interface__["data"][0]
        origins = {owner: _address(segments[owner].data) - base for owner in set(found.owners)}
        for header, owner, position in zip(found.headers, found.owners, found.positions, strict=True):
            start = origins[owner] + position
            spans.append((start + BATCH_OVERHEAD, start + header.size_in_bytes))
        if all(a[1] <= b[0] for a, b in pairwise(spans)):
            return buffer, spans
        spans.clear()  # segments out of order: joining them below puts them in order
    payloads: list[bytes | memoryview] = []
    start = 0
    for header, owner, position in zip(found.headers, found.owners, found.positions, strict=True):
        payload = segments[owner].data[position + BATCH_OVERHEAD : position + header.size_in_bytes]
        plain: bytes | memoryview = payload
        if header.compression != CompressionType.NONE:
            try:
                plain = decompress(header.compression, payload, MAX_BATCH_BYTES)
            except ProtocolError as error:
                raise CorruptBatch(f"{_place(segments[owner], position)}: {error}") from error
        payloads.append(plain)
        spans.append((start, start + len(plain)))
        start += len(plain)
    joined = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    return np.frombuffer(joined, dtype=np.uint8), spans


def _address(data: memoryview) -> int:
    address: int = np.frombuffer(data, dtype=np.uint8).__array_interface__["data"][0]
    return address


def _all_bodies(buffer: Bytes8, spans: list[tuple[int, int]], headers: list[BatchHeader]) -> tuple[Ints, Ints]:
    """Where each record's body starts, for all batches, and how many records each batch has."""
    parts = [
        record_bodies(buffer, start, end, header.record_count)
        for (start, end), header in zip(spans, headers, strict=True)
    ]
    counts = np.array([header.record_count for header in headers], dtype=np.int64)
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)), counts


def _columns(
    buffer: Bytes8, bodies: Ints, counts: Ints, found: _Batches, segments: Sequence[Segment], columns: Sequence[str]
) -> pa.RecordBatch:
    """The wanted columns of the records whose bodies start at `bodies`."""
    headers = found.headers
    limits = np.empty(len(bodies), dtype=np.int64)  # no record reaches past the next one's start
    limits[:-1] = bodies[1:]
    limits[-1] = len(buffer)

    timestamp_delta, position = read_varints(buffer, bodies + 1)  # one byte of attributes, unused
    offset_delta, position = read_varints(buffer, position)
    offsets = np.repeat(np.array([h.base_offset for h in headers], dtype=np.int64), counts) + offset_delta

    keep = _wanted_rows(offsets, counts, found, segments)
    repeats = counts
    if keep is not None:
        offsets, timestamp_delta, position, limits = (a[keep] for a in (offsets, timestamp_delta, position, limits))
        first_rows = np.cumsum(counts) - counts
        repeats = np.add.reduceat(keep, first_rows, dtype=np.int64)

    key_length, key_start = read_varints(buffer, position)
    key_end = key_start + np.maximum(key_length, 0)
    value_length, value_start = read_varints(buffer, key_end)
    value_end = value_start + np.maximum(value_length, 0)
    if (value_end > limits).any() or (key_length < -1).any() or (value_length < -1).any():
        row = int(np.flatnonzero((value_end > limits) | (key_length < -1) | (value_length < -1))[0])
        raise CorruptBatch(f"the record at offset {int(offsets[row])} has a key or value length that cannot be right")

    arrays: list[pa.Array] = []
    for name in columns:
        if name == "key":
            arrays.append(binary_array(buffer, key_start, key_end, key_length < 0))
        elif name == "value":
            arrays.append(binary_array(buffer, value_start, value_end, value_length < 0))
        elif name == "topic":
            arrays.append(_topics(found, segments, repeats, len(offsets)))
        elif name == "partition":
            numbers = np.array([segments[owner].partition for owner in found.owners], dtype=np.int32)
            arrays.append(primitive_array(pa.int32(), np.repeat(numbers, repeats)))
        elif name == "offset":
            arrays.append(primitive_array(pa.int64(), offsets))
        elif name == "timestamp":
            arrays.append(primitive_array(pa.timestamp("us", tz="UTC"), _timestamps(headers, repeats, timestamp_delta)))
        elif name == "timestampType":
            types = np.array([int(h.timestamp_type) for h in headers], dtype=np.int32)
            arrays.append(primitive_array(pa.int32(), np.repeat(types, repeats)))
        else:
            arrays.append(decode_headers(buffer, value_end, limits))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _wanted_rows(offsets: Ints, counts: Ints, found: _Batches, segments: Sequence[Segment]) -> np.ndarray | None:
    """Which rows lie inside their segment's start and end, or None when all do."""
    trims = any(
        header.base_offset < segments[owner].start
        or ((end := segments[owner].end) is not None and header.last_offset >= end)
        for header, owner in zip(found.headers, found.owners, strict=True)
    )
    if not trims:
        return None
    no_end = np.iinfo(np.int64).max
    starts = np.array([segments[owner].start for owner in found.owners], dtype=np.int64)
    ends = np.array([no_end if (e := segments[owner].end) is None else e for owner in found.owners], dtype=np.int64)
    return (offsets >= np.repeat(starts, counts)) & (offsets < np.repeat(ends, counts))


def _timestamps(headers: list[BatchHeader], repeats: Ints, delta: Ints) -> Ints:
    """Microseconds since the epoch. With LogAppendTime the batch's one timestamp counts (KIP-32)."""
    appended = np.array([int(h.timestamp_type) == 1 for h in headers])
    base = np.array(
        [h.max_timestamp if a else h.base_timestamp for h, a in zip(headers, appended, strict=True)], np.int64
    )
    millis = np.repeat(base, repeats)
    if not appended.all():
        millis += delta if not appended.any() else np.where(np.repeat(appended, repeats), 0, delta)
    largest = np.iinfo(np.int64).max // 1000
    if len(millis) and int(millis.max()) > largest:
        millis = np.minimum(millis, largest)  # a timestamp 290,000 years ahead stays far ahead instead of wrapping
    return millis * 1000


def _topics(found: _Batches, segments: Sequence[Segment], repeats: Ints, rows: int) -> pa.Array:
    names = [segments[owner].topic for owner in found.owners]
    if len(set(names)) == 1:
        return constant_string_array(names[0], rows)
    return pa.array(names, pa.string()).take(pa.array(np.repeat(np.arange(len(names)), repeats)))


def _place(segment: Segment, position: int) -> str:
    return f"{segment.topic}-{segment.partition}, byte {position} of the fetched data"
