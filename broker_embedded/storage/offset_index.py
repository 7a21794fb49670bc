"""`.index`: from an offset to the position of the batch to start scanning at.

Entry, 8 bytes: offset relative to the segment's base (int32, the last offset of a batch), position of that batch in the
`.log` file (int32). Sparse: one entry per `index.interval.bytes` of log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from broker_embedded.storage.sparse_index import CorruptIndexError, SparseIndex

_ENTRY = struct.Struct(">ii")
_RELATIVE_OFFSET = struct.Struct(">i")
MAX_RELATIVE_OFFSET = 2**31 - 1


class OffsetPosition(NamedTuple):
    """`offset` is the last offset of the batch at `position`."""

    offset: int
    position: int


def _relative_offset(buffer: bytes | bytearray, position: int) -> int:
    return int(_RELATIVE_OFFSET.unpack_from(buffer, position)[0])


class OffsetIndex(SparseIndex):
    """See the module."""

    entry_bytes = _ENTRY.size

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry. Offsets must increase: an equal one would be a bug."""
        self._append(_ENTRY.pack(last_offset - self.base_offset, position))

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is <= `offset`; the start of the segment if there is none."""
        found = self._first_where(_relative_offset, offset - self.base_offset) - 1
        return self.entry(found) if found >= 0 else OffsetPosition(self.base_offset, 0)

    def entry(self, i: int) -> OffsetPosition:
        relative, position = _ENTRY.unpack(self.entry_at(i))
        return OffsetPosition(self.base_offset + relative, position)

    @property
    def last(self) -> OffsetPosition:
        """The last entry; the start of the segment if there is none."""
        return self.entry(self.count - 1) if self.count else OffsetPosition(self.base_offset, 0)

    def upper_bound_offset(self, *, position: int, fetch_bytes: int) -> int | None:
        """Return the offset of the first entry at or beyond `position + fetch_bytes`: everything fetched lies below
        it."""
        found = bisect_left(range(self.count), position + fetch_bytes, key=lambda i: self.entry(i).position)
        return self.entry(found).offset if found < self.count else None

    def truncate_to(self, offset: int) -> None:
        """Drop entries whose offset is >= `offset`."""
        self._truncate_entries(self._first_where(_relative_offset, offset - self.base_offset - 1))

    def check(self, *, log_bytes: int) -> None:
        """Raise CorruptIndexError if the last entry cannot be true of a log file of this size."""
        if self.count:
            last = self.last
            if last.offset < self.base_offset or not 0 <= last.position < max(1, log_bytes):
                raise CorruptIndexError(
                    f"{self.file.path}: last entry (offset {last.offset}, position {last.position}) does not fit "
                    f"a segment of base offset {self.base_offset} and {log_bytes} bytes"
                )
