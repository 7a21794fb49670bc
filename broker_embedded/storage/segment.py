"""One segment: a `.log` file that starts at a base offset, with its three indexes.

Only the newest segment of a log is written. What is below `size` is whole batches; bytes of the file beyond it (a
failed write) are never served, and are cut when the segment closes or is recovered.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import Bytes
from broker_embedded.storage.batch_walk import (
    BatchAt,
    Located,
    first_batch_ending_at_or_after,
    walk_batches,
    walk_headers,
)
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.log_slice import LogSlice
from broker_embedded.storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from broker_embedded.storage.sparse_index import CorruptIndexError
from broker_embedded.storage.time_index import NO_TIMESTAMP, TimeIndex, TimestampPosition
from broker_embedded.storage.transaction_index import TransactionIndex
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import BATCH_OVERHEAD, BatchHeader, check_crc, parse_header

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_TAIL_BATCHES = 64


def segment_name(base_offset: int) -> str:
    """Return the name of a segment's file: the base offset in 20 digits, so that names sort."""
    return f"{base_offset:020d}"


class LogSegment:
    """See the module. `suffix` is appended to all file names (`.cleaned` while compaction writes a replacement)."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_first_batch_timestamp_ms",
        "_index_interval_bytes",
        "_max_timestamp",
        "_tail_from",
        "_tail_last_offsets",
        "_tail_positions",
        "base_offset",
        "created_ms",
        "directory",
        "log_file",
        "offset_index",
        "size",
        "suffix",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_max_bytes: int,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = created_ms
        stem = f"{directory}/{segment_name(base_offset)}"
        self.log_file = PooledFile(pool, f"{stem}{LOG_SUFFIX}{suffix}")
        self.offset_index = OffsetIndex(
            PooledFile(pool, f"{stem}{INDEX_SUFFIX}{suffix}"), base_offset, max_bytes=index_max_bytes
        )
        self.time_index = TimeIndex(
            PooledFile(pool, f"{stem}{TIME_INDEX_SUFFIX}{suffix}"), base_offset, max_bytes=index_max_bytes
        )
        self.txn_index = TransactionIndex(PooledFile(pool, f"{stem}{TXN_INDEX_SUFFIX}{suffix}"), base_offset)
        self.size = self.log_file.size()
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_index_entry = 0
        self._max_timestamp: TimestampPosition | None = None
        self._first_batch_timestamp_ms: int | None = None
        # The last few batches in memory: readers at the end of the log (most of them) need no index and no disk.
        self._tail_from = -1
        self._tail_last_offsets: list[int] = []
        self._tail_positions: list[int] = []

    def __repr__(self) -> str:
        return f"LogSegment({self.log_file.path}, {self.size} bytes)"

    # -- writing

    def create_files(self) -> None:
        """Make the file of a new segment exist and start writing.

        The indexes' files come with their first entries, or when the segment is flushed: most new logs stay small.
        """
        self.log_file.create()
        self.start_writing()

    def start_writing(self) -> None:
        """Become the active segment."""
        self.offset_index.start_writing()
        self.time_index.start_writing()
        self._bytes_since_index_entry = self.size - self.offset_index.last.position

    def stop_writing(self) -> None:
        """Become read-only: the largest timestamp goes into the time index, indexes leave the memory."""
        maximum = self.max_timestamp
        if self.size:
            self.time_index.maybe_append(maximum.timestamp_ms, maximum.offset, skip_full_check=True)
        self.offset_index.stop_writing()
        self.time_index.stop_writing()
        if self.log_file.size() != self.size:  # a failed write that could not be cut
            self._cut_file(self.size)
        self._tail_from = -1
        self._tail_last_offsets.clear()
        self._tail_positions.clear()

    def write(self, data: Bytes) -> int:
        """Add bytes at the end and return their position. On an error the segment is as it was."""
        position = self.size
        try:
            self.log_file.write_at(data, position)
        except OSError:
            try:  # a part may have been written; what is beyond `size` is never served, but a scan would find it
                self.log_file.truncate(position)
            except OSError:
                logger.warning("%s: a failed write could not be cut at %d", self.log_file.path, position)
            raise
        self.size = position + len(data)
        return position

    def note_batch(
        self, *, position: int, size: int, base_offset: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Index a batch that `write` just added. In order, once for each batch."""
        if position == 0:
            self._first_batch_timestamp_ms = max_timestamp_ms
        maximum = self._max_timestamp
        if maximum is None:
            maximum = self.max_timestamp
        if max_timestamp_ms > maximum[0]:
            self._max_timestamp = maximum = TimestampPosition(max_timestamp_ms, last_offset)
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(maximum[0], maximum[1])
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size
        tail = self._tail_last_offsets
        if not tail:
            self._tail_from = base_offset
        elif len(tail) >= _TAIL_BATCHES:
            half = _TAIL_BATCHES // 2
            self._tail_from = tail[half - 1] + 1
            del tail[:half]
            del self._tail_positions[:half]
        tail.append(last_offset)
        self._tail_positions.append(position)

    def can_hold(self, last_offset: int) -> bool:
        """Return whether an offset fits the indexes' four bytes."""
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    @property
    def is_index_full(self) -> bool:
        return self.offset_index.is_full or self.time_index.is_full

    # -- time

    @property
    def max_timestamp(self) -> TimestampPosition:
        """The largest timestamp of any batch and that batch's last offset; (-1, base offset) when empty."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last
        return self._max_timestamp

    @property
    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp, for retention, or the file's age without one."""
        timestamp_ms = self.max_timestamp.timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self.created_ms

    @property
    def first_batch_timestamp_ms(self) -> int | None:
        """Return the largest timestamp of the first batch, from which segment.ms is counted; None when empty."""
        if self._first_batch_timestamp_ms is None and self.size:
            header = self._header_at(0)
            if header is not None:
                self._first_batch_timestamp_ms = header.max_timestamp
        return self._first_batch_timestamp_ms

    def waited_for_roll_ms(self, *, now_ms: int, timestamp_ms: int | None) -> int:
        """Return how long this segment has been filling, by record time if known (`timestamp_ms`: the next batch's)."""
        first = self.first_batch_timestamp_ms
        if first is not None and first >= 0 and timestamp_ms is not None:
            return timestamp_ms - first
        return now_ms - self.created_ms

    # -- finding

    def locate(self, offset: int) -> Located | None:
        """Return the first batch whose last offset is >= `offset`: the one that contains it, or the next one after a
        gap."""
        if self._tail_from != -1 and offset >= self._tail_from:
            i = bisect_left(self._tail_last_offsets, offset)
            positions = self._tail_positions
            if i == len(positions):
                return None
            end = positions[i + 1] if i + 1 < len(positions) else self.size
            base_offset = self._tail_last_offsets[i - 1] + 1 if i else self._tail_from
            return Located(positions[i], end - positions[i], base_offset)
        position = self.offset_index.lookup(offset).position
        return first_batch_ending_at_or_after(self.log_file, offset, position, size=self.size)

    def slice(self, position: int, size: int) -> LogSlice:
        return LogSlice(self.log_file, position, size, self.base_offset)

    def offset_after_last_batch(self) -> int:
        """Return one past the last offset in this segment; the base offset when empty."""
        if self._tail_last_offsets:
            return self._tail_last_offsets[-1] + 1
        end = self.base_offset
        for _, header in self.headers(self.offset_index.last.position):
            end = header.base_offset + header.last_offset_delta + 1
        return end

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield positions and headers of all batches from a batch's position on; bodies are skipped."""
        return walk_headers(self.log_file, position, size=self.size)

    def batches(self, position: int = 0) -> Iterator[BatchAt]:
        """Yield all batches from a batch's position on; BrokerError where the file is damaged."""
        for batch in self.batches_until_damage(position):
            yield batch
            position = batch.position + len(batch.data)
        self._check_batches_end(position)

    def batches_until_damage(self, position: int = 0) -> Iterator[BatchAt]:
        """Yield whole batches from a batch's position on, up to the first thing that is not one."""
        return walk_batches(self.log_file, position, limit=self.size)

    def batch_at(self, located: Located) -> BatchAt:
        data = memoryview(self.log_file.read_at(located.size, located.position))
        return BatchAt(located.position, parse_header(data, 0), data)

    def locate_by_timestamp(self, timestamp_ms: int, from_offset: int) -> Iterator[BatchAt]:
        """Yield, in order, the batches that may hold a record from `from_offset` on with at least this timestamp."""
        floor = max(self.time_index.lookup(timestamp_ms).offset, from_offset)
        for batch in self.batches(self.offset_index.lookup(floor).position):
            header = batch.header
            if header.max_timestamp >= timestamp_ms and header.base_offset + header.last_offset_delta >= from_offset:
                yield batch

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.log_file.read_at(BATCH_OVERHEAD, position)
        return parse_header(data, 0) if len(data) == BATCH_OVERHEAD else None

    # -- repair

    def check_indexes(self) -> None:
        """Raise CorruptIndexError if an index is missing or cannot belong to this log file."""
        for index in (self.offset_index, self.time_index):
            if self.size and not index.file.exists():
                raise CorruptIndexError(f"{index.file.path} is missing")
        self.offset_index.check(log_bytes=self.size)
        self.time_index.check()
        _ = self.txn_index.entries

    def check_end(self) -> None:
        """Raise BrokerError unless the batches behind the last entry of the offset index end where the file ends.

        It reads headers only, which shows that a file was emptied, cut or zeroed since it was closed.
        """
        position = self.offset_index.last.position
        for at, header in self.headers(position):
            position = at + header.size_in_bytes
        self._check_batches_end(position)

    def _check_batches_end(self, position: int) -> None:
        if position != self.size:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.log_file.path}: batches end at position {position}, wanted {self.size}, where the file ends",
            )

    def recover(self, on_batch: Callable[[BatchAt], None], *, before_cut: Callable[[int, int], None]) -> int:
        """Read every batch, cut the file at the first one that is incomplete or has a wrong CRC, and rebuild the
        indexes.

        `on_batch` is called for each valid batch, after it was indexed. `before_cut` is called with the position where
        the file will be cut and the offset after the last valid batch; if it raises, the file stays unchanged. Returns
        the number of bytes cut.
        """
        file_size = self.log_file.size()
        self.size = file_size
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._max_timestamp = TimestampPosition(NO_TIMESTAMP, self.base_offset)
        self._first_batch_timestamp_ms = None
        self._bytes_since_index_entry = 0
        self._tail_from = -1
        self._tail_last_offsets.clear()
        self._tail_positions.clear()
        valid, next_offset = 0, self.base_offset
        for batch in self.batches_until_damage():
            header = batch.header
            last_offset = header.base_offset + header.last_offset_delta
            is_in_order = header.base_offset >= next_offset and header.last_offset_delta >= 0
            if header.magic != 2 or not is_in_order or not self.can_hold(last_offset):
                break
            if not check_crc(batch.data, 0, header):
                break
            self.note_batch(
                position=batch.position,
                size=len(batch.data),
                base_offset=header.base_offset,
                last_offset=last_offset,
                max_timestamp_ms=header.max_timestamp,
            )
            on_batch(batch)
            valid, next_offset = batch.position + len(batch.data), last_offset + 1
        self.size = valid
        cut = file_size - valid
        if cut:
            before_cut(valid, next_offset)
            logger.warning(
                "%s: cut %d bytes at position %d, after offset %d: not a whole valid batch",
                self.log_file.path,
                cut,
                valid,
                next_offset - 1,
            )
            self._cut_file(valid)
        return cut

    def _cut_file(self, size: int) -> None:
        """Cut the file durably: the next segment starts here, and a second crash would restore the rest."""
        self.log_file.truncate(size)
        self.log_file.flush()

    def truncate_to(self, offset: int) -> bool:
        """Drop the batch that contains `offset` and everything after it, durably. True if anything was dropped."""
        located = self.locate(offset)
        if located is None:
            return False
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.log_file.truncate(located.position)
        self.size = located.position
        keep = bisect_left(self._tail_positions, located.position)
        del self._tail_positions[keep:]
        del self._tail_last_offsets[keep:]
        if not keep:
            self._tail_from = -1
        self._bytes_since_index_entry = self.size - self.offset_index.last.position
        self._max_timestamp = self._max_timestamp_by_scan()
        if self.size == 0:
            self._first_batch_timestamp_ms = None
        self.flush()
        return True

    def _max_timestamp_by_scan(self) -> TimestampPosition:
        """Return the maximum timestamp. The time index knows it up to its last entry; later batches are scanned."""
        maximum = self.time_index.last
        for _, header in self.headers(self.offset_index.lookup(maximum.offset).position):
            if header.max_timestamp > maximum.timestamp_ms:
                maximum = TimestampPosition(header.max_timestamp, header.base_offset + header.last_offset_delta)
        return maximum

    # -- files

    def flush(self) -> None:
        """Make log and indexes durable."""
        self.log_file.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def close(self) -> None:
        self.log_file.close()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()

    @property
    def files(self) -> tuple[PooledFile, PooledFile, PooledFile, PooledFile]:
        """Return the files, indexes first, the log last: renamed in this order, the log file's name commits a
        change.
        """
        return (self.txn_index.file, self.time_index.file, self.offset_index.file, self.log_file)

    def change_suffix(self, suffix: str) -> None:
        """Rename all files, the log file last. The directory is not synced."""
        for file in self.files:
            file.rename(file.path.removesuffix(self.suffix) + suffix)
        self.suffix = suffix

    def moved_to_dir(self, directory: str) -> None:
        self.directory = directory
        for file in self.files:
            file.moved_to_dir(directory)

    def delete_files(self) -> None:
        for file in self.files:
            file.delete()
