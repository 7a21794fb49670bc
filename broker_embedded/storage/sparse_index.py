"""The common part of the offset and time indexes: sorted entries of fixed size, appended at the end, found by
bisection.

The index of the active segment is in memory and is written in small groups. A lost tail is rebuilt by recovery, as in
Kafka, which loses mapped pages in the same way. A closed segment's index stays on disk; a lookup reads at most one
block of it, so that memory does not grow with the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from broker_embedded.storage.file_pool import PooledFile

_WRITE_GROUP_ENTRIES = 64
"""One write per 64 entries: at 4,096 bytes between entries that is one write per 256 KB of log."""

_BLOCK_ENTRIES = 1024


class CorruptIndexError(Exception):
    """The index file contradicts its format. Rebuild it from the log; nothing is lost."""


class SparseIndex:
    """Entries of `entry_bytes`; a subclass knows what is in them."""

    entry_bytes: int

    def __init__(self, file: PooledFile, base_offset: int, *, max_bytes: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self._max_entries = max(1, max_bytes // self.entry_bytes)
        self._memory: bytearray | None = None
        self._count: int | None = None
        self._written = 0

    # -- size

    @property
    def count(self) -> int:
        """Number of entries."""
        if self._count is None:
            self._count = self._count_on_disk()
            self._written = self._count
        return self._count

    @property
    def is_full(self) -> bool:
        return self.count >= self._max_entries

    @property
    def size_bytes(self) -> int:
        return self.count * self.entry_bytes

    def entry_at(self, i: int) -> bytes | bytearray:
        """Return the bytes of entry `i`."""
        size = self.entry_bytes
        if self._memory is not None:
            return self._memory[i * size : (i + 1) * size]
        return self.file.read_at(size, i * size)

    # -- life

    def start_writing(self) -> None:
        """Become the index of an active segment: everything in memory."""
        if self._memory is None:
            count = self.count
            self._memory = bytearray(self.file.read_at(count * self.entry_bytes, 0)) if count else bytearray()

    def stop_writing(self) -> None:
        """Write pending entries, truncate the file to them, and drop the copy in memory: the segment was closed."""
        self.write_pending()
        if self.file.size() > self.size_bytes:
            self.file.truncate(self.size_bytes)
        self._memory = None

    def reset(self) -> None:
        """Forget all entries (before a rebuild)."""
        self.file.create()
        self.file.truncate(0)
        self._memory = bytearray()
        self._count = self._written = 0

    def write_pending(self) -> None:
        """Hand entries that are only in memory to the file system."""
        if self._memory is not None and self._count is not None and self._written < self._count:
            self.file.write_at(
                bytes(self._memory[self._written * self.entry_bytes :]), self._written * self.entry_bytes
            )
            self._written = self._count

    def flush(self) -> None:
        """Make the index durable."""
        self.write_pending()
        self.file.flush()

    def close(self) -> None:
        self.write_pending()
        self.file.close()

    # -- helpers for subclasses

    def _append(self, entry: bytes) -> None:
        if self._memory is None:
            self.start_writing()
        assert self._memory is not None
        self._memory += entry
        self._count = self.count + 1
        if self._count - self._written >= _WRITE_GROUP_ENTRIES:
            try:
                self.write_pending()
            except OSError:
                pass  # a full disk: the entries stay in memory and go with the next group; the append has succeeded

    def _truncate_entries(self, count: int) -> None:
        if count >= self.count:
            return
        self._count = count
        if self._memory is not None:
            del self._memory[count * self.entry_bytes :]
        if self._written > count:
            self.file.truncate(count * self.entry_bytes)
            self._written = count

    def _first_where(self, key: Callable[[bytes | bytearray, int], int], wanted: int) -> int:
        """Return the number of the first entry whose key is > `wanted`; `count` without one."""
        size, low, high = self.entry_bytes, 0, self.count
        block: bytes | bytearray | None = self._memory
        if block is None:
            while high - low > _BLOCK_ENTRIES:
                middle = (low + high) // 2
                if key(self.file.read_at(size, middle * size), 0) > wanted:
                    high = middle
                else:
                    low = middle + 1
            if low == high:
                return low
            block = self.file.read_at((high - low) * size, low * size)
        return low + bisect_right(range(0, (high - low) * size, size), wanted, key=partial(key, block))

    def _count_on_disk(self) -> int:
        """Return how many entries the file has. Kafka allocates an index at full size and cuts it on a clean stop;
        zeros are padding."""
        size = self.entry_bytes
        count, rest = divmod(self.file.size(), size)
        if rest:
            raise CorruptIndexError(
                f"{self.file.path}: {count * size + rest} bytes is not a multiple of the entry size, {size}"
            )
        zeros = bytes(size)
        if count == 0 or self.file.read_at(size, (count - 1) * size) != zeros:
            return count
        return bisect_left(range(count), True, key=lambda i: self.file.read_at(size, i * size) == zeros)
