"""Opens a partition directory: finishes what a crash interrupted, checks what is in doubt, rebuilds the indexes.

After a clean stop only the headers at each segment's end are read. Otherwise every segment from the recovery point on
is scanned (what lies below it was fsynced). The file is cut at the first batch that is incomplete or has a wrong CRC,
and the segments behind a cut are dropped. A crash cannot tear what had been fsynced, so damage below the recovery point
means that the disk lost data: what lies behind it is kept under another name (`.damaged`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.storage.batch_walk import BatchAt, find_valid_batch
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from broker_embedded.storage.leader_epochs import LeaderEpochs
from broker_embedded.storage.offset_index import MAX_RELATIVE_OFFSET
from broker_embedded.storage.producer_state import ProducerStateManager
from broker_embedded.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, LogSegment, segment_name
from broker_embedded.storage.segments import Segments
from broker_embedded.storage.sparse_index import CorruptIndexError
from broker_embedded.storage.transaction_index import AbortedTransactionEntry
from ottla_wire.records.batch import CONTROL_FLAG

logger = logging.getLogger(__name__)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
DAMAGED_SUFFIX = ".damaged"
"""Suffix of files with damage that no crash explains. They are neither served nor removed."""

_COPY_BYTES = 1 << 20
_OFFSET_SUFFIXES = (*SEGMENT_SUFFIXES, SWAP_SUFFIX)
"""Files of these names begin with the base offset of their segment."""


class LoadedLog(NamedTuple):
    """Initial state of a `Log`."""

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class LogLoader:
    """One use: `LogLoader(...).load()`."""

    def __init__(
        self,
        fs: FileSystem,
        pool: FilePool,
        directory: str,
        *,
        name: str,
        config: TopicConfig,
        now_ms: int,
        is_clean: bool,
        recovery_point: int,
        log_start_offset: int,
        must_be_whole: bool = False,
    ) -> None:
        """`must_be_whole`: every batch is read, and valid batches behind a damaged one raise StartupError."""
        self._fs = fs
        self._pool = pool
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._is_clean = is_clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._must_be_whole = must_be_whole
        self._segments = Segments()
        self._found = set(fs.list_dir(directory))
        self._epochs = LeaderEpochs(fs, directory)
        self._producers = ProducerStateManager(fs, directory, name=name, files=self._found)

    def load(self) -> LoadedLog:
        self._finish_interrupted_changes()
        self._open_segments()
        if EPOCHS_FILE in self._found:
            self._epochs.load()
        segments = self._segments
        if len(segments):
            self._log_start_offset = max(self._log_start_offset, segments.first.base_offset)
        was_scanned_to = self._recover()
        log_end_offset = segments.active.offset_after_last_batch() if len(segments) else self._log_start_offset
        if not len(segments) or log_end_offset < self._log_start_offset:
            self._start_anew()
            log_end_offset = was_scanned_to = self._log_start_offset
        segments.active.start_writing()
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        if was_scanned_to != log_end_offset:
            self._load_producers(log_end_offset)
        self._producers.end_offset = log_end_offset
        self._producers.keep_snapshots_of(segment.base_offset for segment in segments)
        recovery_point = min(max(self._recovery_point, segments.first.base_offset), log_end_offset)
        return LoadedLog(
            segments,
            self._epochs,
            self._producers,
            self._log_start_offset,
            log_end_offset,
            log_end_offset if self._is_clean else recovery_point,
        )

    # -- files

    def _finish_interrupted_changes(self) -> None:
        """Remove what was to be removed, complete a compaction that had reached its point of no return.

        The cleaner renames a replacement's `.log` to `.swap` last, after its indexes, all of them fsynced. So:
          1. `<base>.log.swap` exists: the replacement counts. What it replaces goes, then it gets its real name.
          2. Only index files end in `.swap`: it did not get that far (once its log has its real name, all its indexes
             have theirs). They go.
          3. `.cleaned`: it was being written. It goes; the originals are untouched.
        """
        names = self._names()
        doomed = {n for n in names if n.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX))}
        swapped = sorted(n for n in names if n.endswith(LOG_SUFFIX + SWAP_SUFFIX))
        committed = {int(n.removesuffix(LOG_SUFFIX + SWAP_SUFFIX)) for n in swapped}
        doomed |= {n for n in names if n.endswith(SWAP_SUFFIX) and int(n.partition(".")[0]) not in committed}
        for base_offset in sorted(committed):
            doomed |= self._replaced_by(base_offset, names - doomed)
        for name in sorted(doomed, key=lambda n: n.endswith(LOG_SUFFIX)):
            if committed and name.endswith(LOG_SUFFIX):
                self._fs.sync_dir(self._directory)  # an old index must not outlive its log: see `_replaced_by`
            self._fs.remove(f"{self._directory}/{name}")
        for name in sorted(names - doomed, key=lambda n: n.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            if name.endswith(SWAP_SUFFIX):
                self._fs.rename(f"{self._directory}/{name}", f"{self._directory}/{name.removesuffix(SWAP_SUFFIX)}")
        if doomed or committed:
            self._fs.sync_dir(self._directory)
            self._found = set(self._fs.list_dir(self._directory))

    def _replaced_by(self, base_offset: int, names: set[str]) -> set[str]:
        """Return the files of the segments whose offsets a completed replacement covers, including an old segment of
        the same name.

        Where the old `.log` of that name still exists, its indexes may exist too. Where it is gone, an index of that
        name belongs to the replacement and is already renamed. Segments behind the replacement's last batch held only
        records that are superseded further on, so any of them may stay until the next cleaning.
        """
        replacement = self._segment(base_offset, suffix=SWAP_SUFFIX)
        next_offset = base_offset
        for batch in replacement.batches_until_damage():
            next_offset = batch.header.next_offset
        replacement.close()
        covered = {
            int(name.removesuffix(LOG_SUFFIX))
            for name in names
            if name.endswith(LOG_SUFFIX)
            and base_offset <= int(name.removesuffix(LOG_SUFFIX)) < max(next_offset, base_offset + 1)
        }
        return {name for name in names if name.endswith(SEGMENT_SUFFIXES) and int(name.partition(".")[0]) in covered}

    def _open_segments(self) -> None:
        names = sorted(self._names())
        bases = {int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)}
        for name in names:
            if name.endswith(SEGMENT_SUFFIXES[1:]) and int(name.partition(".")[0]) not in bases:
                logger.warning("%s/%s: an index without a log file, removed", self._directory, name)
                self._fs.remove(f"{self._directory}/{name}")
        for base_offset in bases:
            self._segments.add(self._segment(base_offset))

    def _names(self) -> set[str]:
        """Return the files in the directory. A file with a segment's suffix but no offset in its name is not ours, and
        stays."""
        names = self._found
        strange = {name for name in names if name.endswith(_OFFSET_SUFFIXES) and _offset_of(name) is None}
        if strange:
            logger.warning("%s: left alone, not named by an offset: %s", self._directory, ", ".join(sorted(strange)))
        return names - strange

    def _segment(self, base_offset: int, *, suffix: str = "") -> LogSegment:
        path = f"{self._directory}/{segment_name(base_offset)}{LOG_SUFFIX}{suffix}"
        return LogSegment(
            self._pool,
            self._directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            index_max_bytes=self._config.segment_index_bytes,
            created_ms=self._fs.modified_ms(path) if self._fs.exists(path) else self._now_ms,
            suffix=suffix,
        )

    def _start_anew(self) -> None:
        for segment in self._segments:
            segment.delete_files()
            self._segments.remove(segment)
        self._epochs.clear()
        self._producers.clear(self._log_start_offset)
        segment = self._segment(self._log_start_offset)
        segment.create_files()
        self._segments.add(segment)

    # -- recovery

    def _recover(self) -> int:
        """Scan segments in doubt. Returns the offset up to which that rebuilt the producer state, or -1."""
        scanned_to = -1
        unflushed_from = self._segments.floor_index(self._recovery_point) if not self._is_clean else len(self._segments)
        for i, segment in enumerate(self._segments):
            if not self._must_be_whole and i < unflushed_from and self._is_good(segment):
                continue
            if scanned_to != segment.base_offset:
                self._load_producers(segment.base_offset)
            was_flushed = i < unflushed_from
            cut = segment.recover(self._learner(segment), before_cut=partial(self._before_cut, segment, was_flushed))
            scanned_to = self._producers.end_offset
            if segment is not self._segments.active:
                segment.stop_writing()
            if self._is_clean or scanned_to <= self._recovery_point:
                segment.flush()  # nobody will again: the log is on the disk, and its new indexes have to be as well
            if cut or self._lost_its_end(segment):
                self._drop_behind(i, segment, sets_aside=was_flushed)
                return scanned_to
        return scanned_to

    def _before_cut(self, segment: LogSegment, was_flushed: bool, position: int, next_offset: int) -> None:
        """Refuse a cut of data that must stay, and keep a copy of damage that no crash explains."""
        path, size = segment.log_file.path, segment.log_file.size()
        if self._must_be_whole:
            later = [each for each in self._segments if each.base_offset > segment.base_offset]
            found = find_valid_batch(segment.log_file, position, size=size, from_offset=next_offset)
            if found is not None or any(each.size for each in later):
                follows = f"at position {found}" if found is not None else f"in {later[0].log_file.path}"
                raise StartupError(
                    f"{path}: damaged at position {position}, after offset {next_offset - 1}, and valid batches follow "
                    f"{follows}: a start would lose them. Restore the file from a copy; a voter whose fellows have "
                    f"the log may also be started with {self._directory} moved away"
                )
        if was_flushed:
            kept = f"{path}.{position}{DAMAGED_SUFFIX}"
            logger.error("%s: damaged at position %d, what follows is kept as %s", path, position, kept)
            _copy(self._fs, segment.log_file, kept, range(position, size))

    def _lost_its_end(self, segment: LogSegment) -> bool:
        """Return whether a closed segment that may not have been durable ends before the next one starts.

        A crash may remove the end of a file exactly at a batch. Compaction leaves gaps too, but only in files that it
        has fsynced: segments of compacted topics, and those with gaps inside, are accepted.
        """
        next_base = self._segments.next_base_offset(segment)
        if next_base is None or self._is_clean or self._config.is_compacted:
            return False
        wanted = segment.base_offset
        for _, header in segment.headers():
            if header.base_offset != wanted or header.record_count != header.last_offset_delta + 1:
                return False
            wanted = header.next_offset
        return wanted < next_base and next_base - wanted <= MAX_RELATIVE_OFFSET

    def _is_good(self, segment: LogSegment) -> bool:
        try:
            segment.check_indexes()
            segment.check_end()
        except CorruptIndexError as error:
            logger.warning("rebuilding the indexes of %s: %s", segment.log_file.path, error)
            return False
        except BrokerError as error:
            logger.warning("scanning %s: %s", segment.log_file.path, error.message)
            return False
        return True

    def _learner(self, segment: LogSegment) -> Callable[[BatchAt], None]:
        epochs, producers = self._epochs, self._producers

        def learn(batch: BatchAt) -> None:
            header = batch.header
            latest = epochs.latest
            if header.partition_leader_epoch >= 0 and (latest is None or header.partition_leader_epoch > latest):
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            completed = producers.update(header, batch.data, now_ms=self._now_ms)
            if completed is not None:
                if completed.is_aborted:
                    stable = producers.last_stable_offset_after(completed)
                    segment.txn_index.append(
                        AbortedTransactionEntry(
                            completed.producer_id, completed.first_offset, completed.last_offset, stable
                        )
                    )
                producers.complete(completed)

        return learn

    def _drop_behind(self, i: int, segment: LogSegment, *, sets_aside: bool) -> None:
        for later in tuple(self._segments)[i + 1 :]:
            if sets_aside:
                later.log_file.close()
                self._fs.rename(later.log_file.path, f"{later.log_file.path}{DAMAGED_SUFFIX}")
            logger.warning(
                "%s: dropped, the segment before it ends at offset %d, where it was cut",
                later.log_file.path,
                segment.offset_after_last_batch(),
            )
            later.delete_files()
            self._segments.remove(later)
        self._fs.sync_dir(self._directory)

    # -- producer state

    def _load_producers(self, up_to_offset: int) -> None:
        """Load the producers' state as of `up_to_offset`: newest snapshot, then the headers of what came after it."""
        producers = self._producers
        producers.load_snapshot(
            first_base_offset=self._segments.first.base_offset, up_to_offset=up_to_offset, now_ms=self._now_ms
        )
        replay_producers(self._segments, producers, up_to_offset=up_to_offset, now_ms=self._now_ms)


def replay_producers(segments: Segments, producers: ProducerStateManager, *, up_to_offset: int, now_ms: int) -> None:
    """Bring the producer state from its end to `up_to_offset` by the batches' headers (of markers also the record)."""
    from_offset = producers.end_offset
    for segment in segments.holding(from_offset, up_to_offset):
        start = segment.locate(from_offset)
        if start is None:
            continue
        for position, header in segment.headers(start.position):
            if header.base_offset >= up_to_offset:
                break
            data = memoryview(b"")
            if header.attributes & CONTROL_FLAG:
                data = memoryview(segment.log_file.read_at(header.size_in_bytes, position))
            completed = producers.update(header, data, now_ms=now_ms)
            if completed is not None:
                producers.complete(completed)
    producers.end_offset = up_to_offset


def _offset_of(name: str) -> int | None:
    """Return the base offset in a file's name; None without one."""
    stem = name.partition(".")[0]
    is_offset = stem.isascii() and stem.isdigit() and int(stem) < 2**63
    return int(stem) if is_offset and stem == segment_name(int(stem)) else None


def _copy(fs: FileSystem, source: PooledFile, target: str, positions: range) -> None:
    """Copy the bytes at `positions` to a file of their own, durably."""
    file = fs.open(target, create=True)
    try:
        for position in positions[::_COPY_BYTES]:
            file.write_at(
                source.read_at(min(_COPY_BYTES, positions.stop - position), position), position - positions.start
            )
        file.flush()
    finally:
        file.close()
