"""Record batches of a partition in a Fetch response: found and checked, not decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.fetching.transaction_filter import TransactionFilter
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import BATCH_OVERHEAD, BatchHeader, check_crc, parse_header
from ottla_wire.records.control import AbortedTransaction

_SIZE_PREFIX = 12  # base offset and length: enough to know how long a batch is
_MAGIC_AT = 16
_LARGEST_OFFSET = 2**63 - 1


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

    def place(self, position: int) -> str:
        """Return where a byte of the data lies, for messages."""
        return f"{self.topic}-{self.partition}, byte {position} of the fetched data"


class FetchedBatches:
    """The record batches to decode, in order, each with its segment and its position in the segment's data."""

    __slots__ = ("headers", "positions", "segments")

    def __init__(
        self,
        headers: list[BatchHeader] | None = None,
        segments: list[Segment] | None = None,
        positions: list[int] | None = None,
    ) -> None:
        self.headers = headers or []
        self.segments = segments or []
        self.positions = positions or []

    def __len__(self) -> int:
        return len(self.headers)

    def part(self, start: int, end: int) -> FetchedBatches:
        return FetchedBatches(self.headers[start:end], self.segments[start:end], self.positions[start:end])

    def place(self, number: int) -> str:
        """Return which batch this is, for messages."""
        segment, header = self.segments[number], self.headers[number]
        return f"{segment.topic}-{segment.partition}, the batch at offset {header.base_offset}"

    def collect(self, segment: Segment, isolation: Isolation, check_crcs: bool) -> int:
        """Collect the batches of a segment that hold wanted records, and return the offset of the next fetch."""
        data = segment.data
        size = len(data)
        position = 0
        next_offset = segment.start
        # Where nothing was aborted only control batches are left out, which are left out anyway.
        is_filtered = isolation is Isolation.READ_COMMITTED and bool(segment.aborted)
        drop_aborted = TransactionFilter(segment.aborted) if is_filtered else None
        while size - position >= _SIZE_PREFIX:
            if size - position > _MAGIC_AT and data[position + _MAGIC_AT] < 2:
                raise CorruptBatch(
                    f"{segment.place(position)}: message format {data[position + _MAGIC_AT]} is not read;"
                    " Kafka 0.11 and later write format 2, and Kafka 4 no longer reads older ones"
                )
            if size - position < BATCH_OVERHEAD:
                break
            header = parse_header(data, position)
            batch_size = header.size_in_bytes
            if not _can_be_right(header, batch_size):
                raise CorruptBatch(f"{segment.place(position)}: the batch header is corrupt: {header}")
            if batch_size > size - position:
                break  # cut off at the end of the fetch
            if segment.end is not None and header.base_offset >= segment.end:
                next_offset = max(next_offset, segment.end)
                break
            if check_crcs and not check_crc(data, position, header):
                raise CorruptBatch(f"{segment.place(position)}: the batch at offset {header.base_offset} fails its CRC")
            shown = drop_aborted is None or drop_aborted.shows(data, position, header)
            last_offset = header.last_offset
            if shown and not header.is_control and header.record_count > 0 and last_offset >= segment.start:
                self.headers.append(header)
                self.segments.append(segment)
                self.positions.append(position)
            next_offset = max(next_offset, last_offset + 1)
            position += batch_size
        return next_offset if segment.end is None else min(next_offset, max(segment.end, segment.start))


def _can_be_right(header: BatchHeader, size_in_bytes: int) -> bool:
    has_sizes = size_in_bytes >= BATCH_OVERHEAD and header.record_count >= 0
    has_offsets = header.base_offset >= 0 and 0 <= header.last_offset_delta < _LARGEST_OFFSET - header.base_offset
    return has_sizes and has_offsets and header.record_count <= header.last_offset_delta + 1
