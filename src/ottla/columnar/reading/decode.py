"""Fetched bytes to Arrow columns, without a Python object per record.

`scan` takes what one Fetch response holds of one or many partitions, `Scan.batches` gives Arrow record batches: the
record batches of all partitions are decoded in the same numpy calls, because a call costs the same for ten records as
for ten thousand. Python loops run per record batch, never per record (the exceptions are in `walk.py` and `headers.py`,
where lengths differ).

What a consumer must do with a log is done here: the CRC is checked, control batches are passed over, aborted
transactions are dropped when reading committed, a batch cut off at the end of a fetch is left for the next fetch, and
records before the wanted offset (a fetch starts at a batch, not at a record) are trimmed. Offsets may have gaps.

Whoever may write to a topic chooses these bytes, and neither numpy nor Arrow checks what it is told: every length is
compared with the bytes that are left (`length > limit - start`) before anything is added to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ottla.columnar.arrays.binary import binary_array, constant_string_array, primitive_array
from ottla.columnar.arrays.headers import TooManyHeaders, decode_headers
from ottla.columnar.arrays.schema import ALL_COLUMNS, arrow_schema
from ottla.columnar.arrays.varints import BadRow, Bytes8, Ints, read_varints, refuse_rows
from ottla.columnar.reading.inflate import Group, plain_groups
from ottla.columnar.reading.small_batches import small_group_to_arrow
from ottla.columnar.reading.walk import record_bodies
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import BatchHeader

PART_BYTES = 8 * 1024 * 1024
PART_RECORDS = 256 * 1024
"""One Arrow record batch is made of at most so much (or of one record). The smallest record takes 7 bytes and some 150
bytes of columns on the way, the smallest header 2 bytes and some 40: this is what bounds them."""

_INT64 = np.iinfo(np.int64)
_NO_LIMITS_SET = DecodeLimits()


class Scan:
    """Segments whose batches were found and checked, but not decoded yet. Meanwhile a reader can already request the
    following data: segment i continues at `next_offsets[i]`, which is its own start if it held no whole batch."""

    __slots__ = ("_found", "next_offsets")

    def __init__(self, found: FetchedBatches, next_offsets: tuple[int, ...]) -> None:
        self._found = found
        self.next_offsets = next_offsets

    def batches(
        self, columns: Sequence[str] = ALL_COLUMNS, *, limits: DecodeLimits = _NO_LIMITS_SET
    ) -> Iterator[pa.RecordBatch]:
        """Yield all wanted records, segment after segment, as Arrow record batches with these columns; none is empty.

        A fetch of usual size is one record batch. What is more is decoded when the one before was taken. Raises
        `CorruptBatch` and `DecodeLimitExceeded`, when it comes to that batch.
        """
        for group in plain_groups(self._found, limits):
            few = small_group_to_arrow(group, columns, limits)
            if few is not None:
                if few.num_rows:
                    yield few
                continue
            yield from many_to_arrow(group, columns, limits)


def many_to_arrow(group: Group, columns: Sequence[str], limits: DecodeLimits) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of the group as Arrow record batches, however many they are; none is empty."""
    for rows in _parts(group):
        batch = rows.to_arrow(columns, limits)
        if batch.num_rows:
            yield batch


def scan(
    segments: Sequence[Segment], *, isolation: Isolation = Isolation.READ_COMMITTED, check_crcs: bool = True
) -> Scan:
    """Find and check the batches of these segments. Costs per batch, and a CRC over the bytes."""
    found = FetchedBatches()
    next_offsets = [found.collect(segment, isolation, check_crcs) for segment in segments]
    return Scan(found, tuple(next_offsets))


def _parts(group: Group) -> Iterator[_Rows]:
    """Yield the records of a group, so many at a time that their columns take a bounded multiple of `PART_BYTES`."""
    found: list[Ints] = []
    for number, ((start, end), header) in enumerate(zip(group.spans, group.batches.headers, strict=True)):
        try:
            found.append(record_bodies(group.buffer, start, end, header.record_count))
        except BadRow as error:
            raise CorruptBatch(f"{group.batches.place(number)}: {error.reason}") from None
    bodies = found[0] if len(found) == 1 else np.concatenate(found)
    counts = np.array([header.record_count for header in group.batches.headers], dtype=np.int64)
    behind = np.cumsum(counts)  # each batch's last row, and one
    limits = np.empty(len(bodies), dtype=np.int64)  # no record reaches past the next one's start, or its batch's end
    limits[:-1] = bodies[1:]
    limits[behind - 1] = [end for _, end in group.spans]
    start = 0
    while start < len(bodies):
        enough = int(np.searchsorted(bodies, bodies[start] + PART_BYTES))
        end = min(max(start + 1, enough), start + PART_RECORDS, len(bodies))
        if end - start == len(bodies):
            yield _Rows(group.buffer, group.batches, counts, bodies, limits)
        else:
            first = int(np.searchsorted(behind, start, side="right"))
            last = int(np.searchsorted(behind, end, side="left")) + 1
            inside = np.minimum(behind[first:last], end) - np.maximum(behind[first:last] - counts[first:last], start)
            some = group.batches.part(first, last)
            yield _Rows(group.buffer, some, inside, bodies[start:end], limits[start:end])
        start = end


class _Rows:
    """Records on their way to columns: row i's body lies in `buffer[bodies[i]:limits[i]]`; batch k has `counts[k]`."""

    __slots__ = ("batches", "bodies", "buffer", "counts", "limits", "offsets")

    def __init__(self, buffer: Bytes8, batches: FetchedBatches, counts: Ints, bodies: Ints, limits: Ints) -> None:
        self.buffer = buffer
        self.batches = batches
        self.counts = counts
        self.bodies = bodies
        self.limits = limits
        self.offsets: Ints | None = None

    def to_arrow(self, columns: Sequence[str], limits: DecodeLimits) -> pa.RecordBatch:
        try:
            return self._to_arrow(columns, limits)
        except TooManyHeaders as error:
            raise DecodeLimitExceeded(f"{self._place(error.row)} has {error.reason}") from None
        except BadRow as error:
            raise CorruptBatch(f"{self._place(error.row)} is corrupt: {error.reason}") from None

    def _to_arrow(self, columns: Sequence[str], decode_limits: DecodeLimits) -> pa.RecordBatch:
        buffer, limits = self.buffer, self.limits
        headers = self.batches.headers
        timestamp_delta, position = read_varints(buffer, self.bodies + 1, limits)  # one byte of attributes, unused
        offset_delta, position = read_varints(buffer, position, limits)
        self._check_offsets(offset_delta)
        offsets = np.repeat(np.array([h.base_offset for h in headers], dtype=np.int64), self.counts) + offset_delta

        keep = self._wanted(offsets)
        if keep is not None:
            offsets, timestamp_delta, position, limits = (a[keep] for a in (offsets, timestamp_delta, position, limits))
            self.counts = np.add.reduceat(keep, np.cumsum(self.counts) - self.counts, dtype=np.int64)
        self.offsets = offsets

        key_start, key_end, no_key = _lengths(buffer, position, limits, "key")
        value_start, value_end, no_value = _lengths(buffer, key_end, limits, "value")

        arrays: list[pa.Array] = []
        for name in columns:
            if name == "key":
                arrays.append(binary_array(buffer, key_start, key_end, no_key))
            elif name == "value":
                arrays.append(binary_array(buffer, value_start, value_end, no_value))
            elif name == "topic":
                arrays.append(self._topics())
            elif name == "partition":
                numbers = np.array([segment.partition for segment in self.batches.segments], dtype=np.int32)
                arrays.append(primitive_array(pa.int32(), np.repeat(numbers, self.counts)))
            elif name == "offset":
                arrays.append(primitive_array(pa.int64(), offsets))
            elif name == "timestamp":
                micros = _timestamps(headers, self.counts, timestamp_delta)
                arrays.append(primitive_array(pa.timestamp("us", tz="UTC"), micros))
            elif name == "timestampType":
                types = np.array([int(h.timestamp_type) for h in headers], dtype=np.int32)
                arrays.append(primitive_array(pa.int32(), np.repeat(types, self.counts)))
            else:
                arrays.append(decode_headers(buffer, value_end, limits, most=decode_limits.record_headers))
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))

    def _check_offsets(self, delta: Ints) -> None:
        """Check that no record is outside of the offsets in its batch's header: it would be read twice, or not at
        all."""
        largest = np.array([header.last_offset_delta for header in self.batches.headers], dtype=np.int64)
        if int(delta.min()) < 0 or (np.maximum.reduceat(delta, np.cumsum(self.counts) - self.counts) > largest).any():
            wrong = (delta < 0) | (delta > np.repeat(largest, self.counts))
            refuse_rows(wrong, "its offset lies outside of its batch")

    def _wanted(self, offsets: Ints) -> np.ndarray | None:
        """Return which rows lie inside their segment's start and end, or None when all do."""
        trims = any(
            header.base_offset < segment.start or (segment.end is not None and header.last_offset >= segment.end)
            for header, segment in zip(self.batches.headers, self.batches.segments, strict=True)
        )
        if not trims:
            return None
        segments = self.batches.segments
        starts = np.array([segment.start for segment in segments], dtype=np.int64)
        ends = np.array([_INT64.max if segment.end is None else segment.end for segment in segments], dtype=np.int64)
        return (offsets >= np.repeat(starts, self.counts)) & (offsets < np.repeat(ends, self.counts))

    def _topics(self) -> pa.Array:
        names = [segment.topic for segment in self.batches.segments]
        if len(set(names)) == 1:
            return constant_string_array(names[0], int(self.counts.sum()))
        return pa.array(names, pa.string()).take(pa.array(np.repeat(np.arange(len(names)), self.counts)))

    def _place(self, row: int) -> str:
        place = self.batches.place(int(np.searchsorted(np.cumsum(self.counts), row, side="right")))
        return f"{place}: a record" if self.offsets is None else f"{place}: the record at offset {self.offsets[row]}"


def _lengths(buffer: Bytes8, position: Ints, limits: Ints, what: str) -> tuple[Ints, Ints, np.ndarray]:
    """Return (start, end, is null) of the keys or values whose lengths stand at these positions."""
    length, start = read_varints(buffer, position, limits)
    # Never `start + length > limits`: a length of 2^63 - 1 makes that sum negative, and the check pass.
    refuse_rows((length < -1) | (length > limits - start), f"its {what} has a length that reaches out of it")
    return start, start + np.maximum(length, 0), length < 0


def _timestamps(headers: list[BatchHeader], counts: Ints, delta: Ints) -> Ints:
    """Return microseconds since the epoch. With LogAppendTime the batch's one timestamp counts (KIP-32)."""
    appended = np.array([int(h.timestamp_type) == 1 for h in headers])
    base = np.array(
        [h.max_timestamp if a else h.base_timestamp for h, a in zip(headers, appended, strict=True)], np.int64
    )
    millis = np.repeat(base, counts)
    if not appended.all():
        millis = _sum(millis, delta if not appended.any() else np.where(np.repeat(appended, counts), 0, delta))
    largest = _INT64.max // 1000
    if len(millis) and (int(millis.max()) > largest or int(millis.min()) < -largest):
        # A timestamp 290,000 years ahead or ago stays far away instead of wrapping.
        millis = np.clip(millis, -largest, largest)
    return millis * 1000


def _sum(base: Ints, delta: Ints) -> Ints:
    """Return the sum, or the largest or smallest number where it does not fit."""
    total = base + delta
    half = 1 << 62
    if len(delta) and any(int(a.max()) >= half or int(a.min()) < -half for a in (base, delta)):
        wrapped = ((base ^ total) & (delta ^ total)) < 0
        total[wrapped] = np.where(delta[wrapped] < 0, _INT64.min, _INT64.max)
    return total
