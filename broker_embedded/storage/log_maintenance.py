"""Maintains one partition's segments: rolling, truncation at both ends, retention, the swap after compaction, flushing.

Files that leave the log are renamed at once and removed later (`file.delete.delay.ms`): a response may still be reading
them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import parent
from broker_embedded.storage import checkpoints
from broker_embedded.storage.log_loader import DELETED_SUFFIX, replay_producers
from broker_embedded.storage.log_reading import ReadableLog
from broker_embedded.storage.retention import segments_to_delete
from broker_embedded.storage.segment import LogSegment
from ottla_wire.protocol import ErrorCode

logger = logging.getLogger(__name__)


class MaintainedLog(ReadableLog):
    """See the module. Retention and compaction never touch what lies above the high watermark."""

    # -- rolling

    def roll(self) -> None:
        """Start a new active segment at the log end offset, unless the active one is empty."""
        if self.segments.active.size:
            self._roll_at(self.log_end_offset, self._clock.now_ms())

    def _roll_at(self, base_offset: int, now_ms: int) -> None:
        segment = self.new_segment(base_offset, now_ms)
        try:
            self.producers.end_offset = base_offset
            self.producers.take_snapshot()
            segment.create_files()
            closed = self.segments.active
            closed.stop_writing()
            if self.recovery_point >= base_offset:
                # Its batches are durable and will not be scanned again: then neither may its time index be in doubt.
                closed.time_index.flush()
        except OSError as error:
            segment.delete_files()
            raise self.failed(error, path=segment.log_file.path, doing="starting a segment") from error
        self.segments.add(segment)

    def new_segment(self, base_offset: int, now_ms: int, *, suffix: str = "") -> LogSegment:
        """Return a segment object of this log; its files do not exist yet."""
        return LogSegment(
            self._pool,
            self.directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            index_max_bytes=self._config.segment_index_bytes,
            created_ms=now_ms,
            suffix=suffix,
        )

    def assign_leader_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Remember, durably, that `leader_epoch` starts at `start_offset`."""
        try:
            self.epochs.assign(leader_epoch, start_offset)
        except OSError as error:
            raise self.failed(error, path=self.directory, doing="writing the leader epochs") from error
        self._latest_epoch = self.epochs.latest_written

    def note_leader_epoch(self, leader_epoch: int) -> None:
        """Note that `leader_epoch` starts at the log end, for a new leader. Its first append writes that down."""
        self.epochs.note(leader_epoch, self.log_end_offset)

    # -- cutting

    def delete_records(self, before_offset: int) -> int:
        """Move the log start offset to `before_offset` (-1 = high watermark) and return it (DeleteRecords)."""
        if not self._config.deletes_old_segments:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.name}: records can only be deleted if cleanup.policy contains delete, "
                f"it is {','.join(self._config.cleanup_policy)}",
            )
        wanted = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= wanted <= self.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: cannot delete before {wanted}, the high watermark is {self.high_watermark}",
            )
        # The new start is durable once it is answered: a crash must not find a log that ends before it.
        self._flush_below(wanted)
        self.increase_log_start_offset(wanted)
        return self.log_start_offset

    def increase_log_start_offset(self, offset: int) -> bool:
        """Move the log start offset forward, as a follower does after its leader. Returns True if it moved.

        An offset that the disk refused to save is saved by the next call, even if that call moves nothing.
        """
        is_ahead = offset > self.log_start_offset
        if not is_ahead and not self._is_start_unsaved:
            return False
        if is_ahead:
            self.log_start_offset = min(offset, self.log_end_offset)
            self.high_watermark = max(self.high_watermark, self.log_start_offset)
        self._is_start_unsaved = True
        try:
            self.epochs.truncate_from_start(self.log_start_offset)
            self._report_cut()
        except OSError as error:
            raise self.failed(error, path=self.directory, doing="saving the log start") from error
        self._is_start_unsaved = False
        return is_ahead

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on, durably (a follower that diverged). True if anything was dropped.

        A batch that contains `offset` goes as a whole, as in Kafka; leader epochs start at batches, so it never happens
        in replication.
        """
        try:
            if offset >= self.log_end_offset:
                # A leader that resigned before its first append left an epoch that starts at the end, and that nobody
                # else knows.
                self._cut_epochs(self.log_end_offset)
                return False
            if offset < self.segments.first.base_offset:
                self._cut_all(offset)
            else:
                self._cut_from(offset)
        except OSError as error:
            raise self.failed(error, path=self.directory, doing="truncating") from error
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and continue at `offset` (a follower whose leader no longer has what it needs next)."""
        try:
            self._cut_all(offset)
        except OSError as error:
            raise self.failed(error, path=self.directory, doing="truncating") from error

    def _cut_from(self, offset: int) -> None:
        """Truncate at `offset`. After a failed step the next call starts again with the first."""
        self._announce_cut(offset)
        for segment in reversed(tuple(self.segments)):
            if segment.base_offset > offset:
                self._discard(segment)
        active = self.segments.active
        active.start_writing()
        active.truncate_to(offset)
        self._fs.sync_dir(self.directory)
        self._reload_producers(offset)
        self._end_at(offset)

    def _cut_all(self, offset: int) -> None:
        self._announce_cut(offset)
        for segment in reversed(tuple(self.segments)):
            segment.change_suffix(segment.suffix + DELETED_SUFFIX)
            if len(self.segments) == 1:  # a log is never without a segment, whatever is refused
                self.segments.add(self.new_segment(offset, self._clock.now_ms()))
            self._forget(segment)
        self._fs.sync_dir(self.directory)
        self.segments.active.create_files()
        self.producers.clear(offset)
        self.log_start_offset = self.high_watermark = offset
        self._end_at(offset)

    def _announce_cut(self, offset: int) -> None:
        """Record the cut before it is made, so that after a crash new records from `offset` on count neither as fsynced
        nor as deleted.
        """
        before = self.recovery_point, self.log_start_offset
        self.recovery_point, self.log_start_offset = (
            min(self.recovery_point, offset),
            min(self.log_start_offset, offset),
        )
        try:
            self.settle()
            self._report_cut()
        except OSError:
            self.recovery_point, self.log_start_offset = before
            raise

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.cleaned_to = min(self.cleaned_to, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._cut_epochs(offset)

    def _cut_epochs(self, offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        self._latest_epoch = self.epochs.latest_written

    def _report_cut(self) -> None:
        """Report that the log start went up or the recovery point down: no checkpoint that says otherwise may survive a
        crash."""
        if self._on_cut is not None:
            self._on_cut(self)

    def _reload_producers(self, end_offset: int) -> None:
        now_ms = self._clock.now_ms()
        self.producers.load_snapshot(
            first_base_offset=self.segments.first.base_offset, up_to_offset=end_offset, now_ms=now_ms
        )
        replay_producers(self.segments, self.producers, up_to_offset=end_offset, now_ms=now_ms)
        self.producers.on_high_watermark(min(self.high_watermark, end_offset))

    # -- retention

    def apply_retention(self, *, now_ms: int) -> int:
        """Delete old segments: below the log start offset always, by retention.ms and retention.bytes if
        cleanup.policy contains delete. Never above the high watermark. Returns how many."""
        doomed = segments_to_delete(
            self.segments,
            config=self._config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        if not doomed:
            return 0
        if len(doomed) == len(self.segments):
            self._roll_at(self.log_end_offset, now_ms)
        next_offset = self.segments.next_base_offset(doomed[-1])
        assert next_offset is not None
        self.increase_log_start_offset(next_offset)
        for segment in doomed:
            logger.info("%s: segment %d deleted by retention", self.name, segment.base_offset)
            self._discard(segment)
        self.producers.remove_snapshots_before(self.segments.first.base_offset)
        self.purge_deleted(now_ms=now_ms)
        return len(doomed)

    def _discard(self, segment: LogSegment) -> None:
        """Take a segment out of the log. Its files are renamed now, removed later: a response may still be reading."""
        segment.change_suffix(segment.suffix + DELETED_SUFFIX)
        self._forget(segment)

    def _forget(self, segment: LogSegment) -> None:
        self.segments.remove(segment)
        self.doom(segment)

    def doom(self, segment: LogSegment) -> None:
        """Remove a renamed segment's files once file.delete.delay.ms has passed."""
        due_ms = self._clock.now_ms() + self._config.file_delete_delay_ms
        self._doomed.extend((due_ms, file) for file in segment.files)

    # -- compaction (`storage.cleaner` decides, this swaps)

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment, *, swap_suffix: str) -> None:
        """Put a finished, fsynced replacement in the place of neighbours. A crash at any step leaves one or the other.

        The directory is synced between the steps, so that no later rename can be on the disk without the earlier ones.
        """
        new.change_suffix(swap_suffix)
        self._fs.sync_dir(self.directory)
        for segment in old:
            self._discard(segment)
        self._fs.sync_dir(self.directory)
        new.change_suffix("")
        self._fs.sync_dir(self.directory)
        self.segments.add(new)
        self.producers.keep_snapshots_of(segment.base_offset for segment in self.segments)

    def modified_ms(self, segment: LogSegment) -> int:
        """Return when a segment's file was last written."""
        return self._fs.modified_ms(segment.log_file.path)

    def set_modified_ms(self, segment: LogSegment, modified_ms: int) -> None:
        """Give a replacement the age of its original, so that retention does not restart."""
        self._fs.set_modified_ms(segment.log_file.path, modified_ms)

    def purge_deleted(self, *, now_ms: int) -> None:
        """Remove the files whose time has come."""
        while self._doomed and self._doomed[0][0] <= now_ms:
            self._doomed.popleft()[1].delete()

    # -- flushing and closing

    def flush(self) -> None:
        """Make everything appended so far durable and move the recovery point."""
        self._flush_below(self.log_end_offset)
        self.flushed_at_ms = self._clock.now_ms()

    def save_recovery_point(self, offset: int) -> None:
        """Make everything below `offset` durable, and the knowledge of it too."""
        self._flush_below(offset)
        self._report_cut()

    def flush_rolled(self) -> None:
        """Make the closed segments durable; the active one is left to the operating system, as Kafka leaves it."""
        self._flush_below(self.segments.active.base_offset)

    def _flush_below(self, offset: int) -> None:
        if self.recovery_point >= offset:
            return
        try:
            self.settle()
            for segment in self.segments.holding(self.recovery_point, offset):
                segment.flush()
        except OSError as error:
            raise self.failed(error, path=self.directory, doing="fsync") from error
        self.recovery_point = offset

    def settle(self) -> None:
        """Put the directory on the disk, if it is new: the fsyncs of ten thousand new partitions take a minute."""
        if self.is_settled:
            return
        if self.topic_id is not None:
            checkpoints.sync_partition_metadata(self._fs, self.directory)
        else:
            self._fs.sync_dir(self.directory)
        self._fs.sync_dir(parent(self.directory))
        self.is_settled = True

    def close(self) -> None:
        """Flush, write the producer snapshot and close all files. For a clean shutdown."""
        if self._is_closed:
            return
        if not self.is_settled and not self.log_end_offset:  # there was never anything in it
            self.close_files()
            return
        self.segments.active.stop_writing()
        self.settle()
        for segment in self.segments.holding(self.recovery_point, self.log_end_offset + 1):
            segment.flush()
        self.recovery_point = self.log_end_offset
        self.producers.end_offset = self.log_end_offset
        self.producers.take_snapshot()
        while self._doomed:
            self._doomed.popleft()[1].delete()
        self.close_files()

    def close_files(self) -> None:
        """Give up the file handles and nothing else (a directory that failed or is being deleted)."""
        self._is_closed = True
        for segment in self.segments:
            for file in segment.files:  # not the segment itself: it would write, and the disk may be full
                file.close()
        for _, file in self._doomed:
            file.close()

    def moved_to_dir(self, directory: str) -> None:
        """Update the paths of open files: the directory was renamed."""
        self.directory = self.producers.directory = self.epochs.directory = directory
        for segment in self.segments:
            segment.moved_to_dir(directory)
        for _, file in self._doomed:
            file.moved_to_dir(directory)
