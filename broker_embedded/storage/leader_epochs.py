"""`leader-epoch-checkpoint`: at which offset each leader epoch starts. Divergence after a failover is found with it.

Epochs and start offsets both only grow. The file is text: version 0, number of entries, one "epoch offset" per line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from broker_embedded.common.filesystem import FileSystem
from broker_embedded.storage.checkpoints import CorruptCheckpointError, read_lines, write_lines

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """The largest epoch <= the requested one, and the offset where it ends; (-1, -1) when unknown."""

    leader_epoch: int
    end_offset: int


class LeaderEpochs:
    """See the module. Written when an entry is added or removed, which is once per leadership, not per append."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.directory = directory
        self._entries: list[EpochEntry] = []
        self.latest_written = UNDEFINED_EPOCH
        """The latest epoch that the file has."""

    def load(self) -> None:
        """Read the file; a missing or unreadable one is empty (recovery learns the epochs from the batches)."""
        try:
            lines = read_lines(self._fs, f"{self.directory}/{FILE_NAME}")
            self._entries = [EpochEntry(int(epoch), int(offset)) for epoch, offset in (line.split() for line in lines)]
        except (FileNotFoundError, CorruptCheckpointError, ValueError):
            self._entries = []
        self._entries_are_written(self._entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Start `epoch` at `start_offset`. Entries that contradict it are dropped. Nothing happens if it is known."""
        kept = self._with(epoch, start_offset)
        if kept is None and self.latest_written >= epoch:
            return
        # Written first: an epoch that the disk has not is not known, and is written with the next attempt.
        kept = self._entries if kept is None else kept
        self._write(kept)
        self._entries = kept

    def note(self, epoch: int, start_offset: int) -> None:
        """Start an epoch in memory alone, as `assign` does, while it has no records yet.

        Its first append assigns it. A crash before that loses nothing: an epoch that starts where the log ends is
        dropped when a log is loaded. Writing it for each of ten thousand new partitions would take seconds.
        """
        kept = self._with(epoch, start_offset)
        if kept is not None:
            self._entries = kept

    def _with(self, epoch: int, start_offset: int) -> list[EpochEntry] | None:
        """Return the entries with one more; None if it adds nothing."""
        entries = self._entries
        if epoch < 0 or (entries and epoch <= entries[-1].epoch and start_offset >= entries[-1].start_offset):
            return None
        kept = [e for e in entries if e.epoch < epoch and e.start_offset < start_offset]
        kept.append(EpochEntry(epoch, start_offset))
        return kept

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which `offset` was written, -1 if unknown."""
        i = bisect_right([e.start_offset for e in self._entries], offset) - 1
        return self._entries[i].epoch if i >= 0 else UNDEFINED_EPOCH

    def end_offset_of(self, epoch: int, *, log_end_offset: int) -> EpochEndOffset:
        """Return where `epoch` ended, or the largest smaller known epoch (OffsetForLeaderEpoch, KIP-279)."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right([e.epoch for e in entries], epoch)
        end_offset = entries[higher].start_offset
        # Before the first known epoch all is assumed to be shared: the requested one ends where that one starts.
        return EpochEndOffset(entries[higher - 1].epoch if higher else epoch, end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at `end_offset` or later."""
        kept = [e for e in self._entries if e.start_offset < end_offset]
        if len(kept) < len(self._entries):
            self._entries = kept
            self._write(self._entries)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one that covers it now starts there."""
        i = bisect_right([e.start_offset for e in self._entries], start_offset) - 1
        if i < 0 or (i == 0 and self._entries[0].start_offset == start_offset):
            return
        self._entries = [EpochEntry(self._entries[i].epoch, start_offset), *self._entries[i + 1 :]]
        self._write(self._entries)

    def clear(self) -> None:
        if self._entries:
            self._entries = []
            self._write(self._entries)

    def _write(self, entries: Sequence[EpochEntry]) -> None:
        lines = [f"{epoch} {offset}" for epoch, offset in entries]
        write_lines(self._fs, f"{self.directory}/{FILE_NAME}", lines)
        self._entries_are_written(entries)

    def _entries_are_written(self, entries: Sequence[EpochEntry]) -> None:
        self.latest_written = entries[-1].epoch if entries else UNDEFINED_EPOCH
