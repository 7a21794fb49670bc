"""`.txnindex`: the aborted transactions whose markers are in a segment, for read_committed fetches.

Entry, 34 bytes: version (int16, 0), producer id, first offset, last offset (of the abort marker), last stable offset at
that time (int64 each). The file exists only once there is an entry. Few transactions abort: it is read whole.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker_embedded.storage.file_pool import PooledFile
from broker_embedded.storage.sparse_index import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0


class AbortedTransactionEntry(NamedTuple):
    """One entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Remembered:
    """Whether a cached list of empty indexes is still valid."""

    __slots__ = ("is_true",)

    def __init__(self) -> None:
        self.is_true = False


class TransactionIndex:
    """See the module."""

    __slots__ = ("_entries", "_written", "base_offset", "emptiness", "file")

    def __init__(self, file: PooledFile, base_offset: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.emptiness: Remembered | None = None
        """Called when this index gets its first entry or loses its last."""
        self._entries: list[AbortedTransactionEntry] | None = None
        self._written = 0

    @property
    def entries(self) -> list[AbortedTransactionEntry]:
        """All entries, by last offset."""
        if self._entries is None:
            self._entries = self._load()
            self._written = len(self._entries)
        return self._entries

    def append(self, entry: AbortedTransactionEntry) -> None:
        entries = self.entries
        if entries and entries[-1].last_offset >= entry.last_offset:
            raise ValueError(
                f"{self.file.path}: aborted transactions are added in order of their markers; "
                f"last is {entries[-1].last_offset}, got {entry.last_offset}"
            )
        entries.append(entry)
        if len(entries) == 1:
            self._forget_emptiness()
        try:
            self._write_pending()
        except OSError:
            pass  # a full disk: the entry stays in memory and is written with the next one; the append has succeeded

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransactionEntry], bool]:
        """Return transactions with records in [start, end), and whether no later segment can hold another one."""
        found = []
        for entry in self.entries:
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at `offset` or beyond."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) < len(self.entries):
            self._entries = kept
            if not kept:
                self._forget_emptiness()
            self._written = min(self._written, len(kept))
            self.file.truncate(self._written * ENTRY_BYTES)

    def reset(self) -> None:
        if self.file.exists():
            self.file.truncate(0)
        self._entries = []
        self._written = 0
        self._forget_emptiness()

    def flush(self) -> None:
        self._write_pending()
        if self.file.exists():
            self.file.flush()

    def close(self) -> None:
        self._write_pending()
        self.file.close()

    def _forget_emptiness(self) -> None:
        if self.emptiness is not None:
            self.emptiness.is_true = False

    def _write_pending(self) -> None:
        if self._entries is not None and self._written < len(self._entries):
            pending = self._entries[self._written :]
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in pending)
            self.file.write_at(data, self._written * ENTRY_BYTES)
            self._written = len(self._entries)

    def _load(self) -> list[AbortedTransactionEntry]:
        if not self.file.exists():
            return []
        data = self.file.read_at(self.file.size(), 0)
        entries = []
        for position in range(0, len(data) - len(data) % ENTRY_BYTES, ENTRY_BYTES):
            version, *fields = _ENTRY.unpack_from(data, position)
            entry = AbortedTransactionEntry(*fields)
            if version > _VERSION or entry.last_offset < self.base_offset:
                raise CorruptIndexError(
                    f"{self.file.path}: entry at {position} has version {version} and last offset {entry.last_offset}, "
                    f"wanted version {_VERSION} and an offset from {self.base_offset} on"
                )
            entries.append(entry)
        return entries
