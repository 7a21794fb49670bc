"""`.timeindex`: from a timestamp to the offset before which no record has a later timestamp.

Entry, 12 bytes: timestamp (int64, the largest so far), offset relative to the segment's base (int32, the last offset of
the batch that carries it). An entry (T, O) says: every record with a timestamp greater than T has an offset greater
than O.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_embedded.storage.sparse_index import CorruptIndexError, SparseIndex

_ENTRY = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q")
_RELATIVE_OFFSET = struct.Struct(">i")
NO_TIMESTAMP = -1


class TimestampPosition(NamedTuple):
    """A timestamp and the last offset of the batch that reached it."""

    timestamp_ms: int
    offset: int


def _timestamp(buffer: bytes | bytearray, position: int) -> int:
    return int(_TIMESTAMP.unpack_from(buffer, position)[0])


def _relative_offset(buffer: bytes | bytearray, position: int) -> int:
    return int(_RELATIVE_OFFSET.unpack_from(buffer, position + 8)[0])


class TimeIndex(SparseIndex):
    """See the module."""

    entry_bytes = _ENTRY.size

    def maybe_append(self, timestamp_ms: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if the timestamp is later than the last entry's. A full index accepts one more when the segment
        closes."""
        if self.is_full and not skip_full_check:
            return
        if timestamp_ms > self.last.timestamp_ms:
            self._append(_ENTRY.pack(timestamp_ms, offset - self.base_offset))

    @property
    def is_full(self) -> bool:
        return self.count >= self._max_entries - 1  # the last slot is for closing the segment

    def lookup(self, timestamp_ms: int) -> TimestampPosition:
        """Return the last entry whose timestamp is <= `timestamp_ms`; (-1, base offset) if there is none."""
        found = self._first_where(_timestamp, timestamp_ms) - 1
        return self.entry(found) if found >= 0 else TimestampPosition(NO_TIMESTAMP, self.base_offset)

    def entry(self, i: int) -> TimestampPosition:
        timestamp_ms, relative = _ENTRY.unpack(self.entry_at(i))
        return TimestampPosition(timestamp_ms, self.base_offset + relative)

    @property
    def last(self) -> TimestampPosition:
        """The last entry; (-1, base offset) if there is none."""
        return self.entry(self.count - 1) if self.count else TimestampPosition(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop entries whose offset is >= `offset` (offsets grow with timestamps)."""
        self._truncate_entries(self._first_where(_relative_offset, offset - self.base_offset - 1))

    def check(self) -> None:
        """Raise CorruptIndexError if the last entry cannot be true of this segment."""
        if self.count and self.last.timestamp_ms < self.entry(0).timestamp_ms:
            raise CorruptIndexError(f"{self.file.path}: ends with {self.last}, it starts with {self.entry(0)}")
        if self.count and self.last.offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.file.path}: last entry points to {self.last.offset}, the segment starts at {self.base_offset}"
            )
