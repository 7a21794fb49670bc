"""The log of one partition: an ordered set of segments that accepts batches at its end and serves byte ranges.

Responsible here: validation and offset assignment on append, as leader and as follower. Reads are in
`storage.log_reading`; rolling, truncation, DeleteRecords and retention in `storage.log_maintenance`.
Not responsible for: replication (who may append and what the high watermark is: the replica manager tells the log),
compaction (`storage.cleaner`), the directories (`storage.log_manager`).

Everything is synchronous and owned by one thread. Time comes from the injected clock or is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.storage.append import AppendInfo, AppendOrigin
from broker_embedded.storage.log_maintenance import MaintainedLog
from broker_embedded.storage.offset_index import MAX_RELATIVE_OFFSET
from broker_embedded.storage.segment import LogSegment
from broker_embedded.storage.transaction_index import AbortedTransactionEntry
from broker_embedded.storage.validator import refuse_wrong_crc, validate_for_leader
from ottla_wire.protocol import ErrorCode, ProtocolError
from ottla_wire.records.batch import (
    BatchHeader,
    iter_batches,
    parse_header,
    patch_batch,
    patch_log_append_time,
)

_MAGIC = 2


class Log(MaintainedLog):
    """One partition directory. Built by `LogManager.get_or_create`; never constructed elsewhere in the broker.

    Offsets: `log_start_offset` <= `high_watermark` <= `log_end_offset`; `last_stable_offset` <= `high_watermark`.
    The replication layer owns the meaning of the high watermark and must call `update_high_watermark` (with one
    replica: to the log end offset after each append); retention and compaction never touch what lies above it.
    """

    def append_as_leader(
        self, buffer: memoryview | bytearray, *, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Validate, assign offsets, append. `buffer` is writable and is patched in place (base offset, leader epoch).

        Raises BrokerError (with `record_errors` where single records are at fault); then nothing was appended.
        A batch already appended (same producer id, epoch and sequences, among the last 5) answers its first offset.
        """
        now_ms = self._clock.now_ms()
        config = self._config
        header, data = validate_for_leader(
            memoryview(buffer), config=config, origin=origin, now_ms=now_ms, name=self.name
        )
        log_append_time_ms = -1
        if config.message_timestamp_type == "LogAppendTime":
            log_append_time_ms = now_ms
        if header.producer_id >= 0:
            duplicate = self.producers.check(header, data, origin=origin)
            if duplicate is not None:
                return AppendInfo(
                    duplicate.first_offset,
                    duplicate.last_offset,
                    duplicate.timestamp_ms if log_append_time_ms >= 0 else -1,
                    self.log_start_offset,
                    True,
                )
        if log_append_time_ms >= 0:
            patch_log_append_time(data, 0, now_ms)
        base_offset = self.log_end_offset
        patch_batch(data, 0, base_offset, leader_epoch)
        header = parse_header(data, 0)
        size = len(data)
        if self._must_roll_before(header, size, now_ms) and self.segments.active.size:
            self._roll_at(base_offset, now_ms)
        self._append_run(data, ((0, header),), size, now_ms)
        return AppendInfo(
            base_offset, base_offset + header.last_offset_delta, log_append_time_ms, self.log_start_offset, False
        )

    def append_as_follower(self, buffer: memoryview | bytes) -> AppendInfo | None:
        """Append whole batches as the leader wrote them; a torn one at the end is dropped. None if nothing is whole.

        Offsets must not fall below the log end offset (compaction leaves gaps at the leader); otherwise BrokerError.
        """
        now_ms = self._clock.now_ms()
        data = memoryview(buffer)
        batches: list[tuple[int, BatchHeader]] = []
        wanted = self.log_end_offset
        try:
            for position, header in iter_batches(data):
                if header.magic != _MAGIC:
                    raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: magic {header.magic}, wanted {_MAGIC}")
                if header.base_offset < wanted or header.last_offset_delta < 0:
                    raise BrokerError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"{self.name}: the leader sent offsets {header.base_offset} to {header.last_offset}, "
                        f"wanted {wanted} or more",
                    )
                refuse_wrong_crc(data[position : position + header.size_in_bytes], header, name=self.name)
                batches.append((position, header))
                wanted = header.next_offset
        except ProtocolError as error:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
        if not batches:
            return None
        self._append_batches(data, batches, now_ms)
        return AppendInfo(batches[0][1].base_offset, wanted - 1, -1, self.log_start_offset, False)

    def _append_batches(self, data: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int) -> None:
        """Write checked batches, in as few writes as segments allow (normally one), and note each."""
        run: list[tuple[int, BatchHeader]] = []
        run_bytes = 0
        for batch in batches:
            header = batch[1]
            size = header.batch_length + 12
            if self._must_roll_before(header, run_bytes + size, now_ms):
                if run:
                    self._append_run(data, run, run_bytes, now_ms)
                    run, run_bytes = [], 0
                if self.segments.active.size or not self.segments.active.can_hold(header.last_offset):
                    # At the log end, so that recovery can tell a lost end of a segment from a gap that the leader has.
                    is_far = header.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET
                    self._roll_at(header.base_offset if is_far else self.log_end_offset, now_ms)
            run.append(batch)
            run_bytes += size
        self._append_run(data, run, run_bytes, now_ms)

    def _must_roll_before(self, header: BatchHeader, run_bytes: int, now_ms: int) -> bool:
        active, config = self.segments.active, self._config
        is_full = active.size + run_bytes > config.segment_bytes
        if is_full or not active.size:
            return is_full or not active.can_hold(header.base_offset + header.last_offset_delta)
        waited_ms = active.waited_for_roll_ms(now_ms=now_ms, timestamp_ms=header.max_timestamp)
        is_old = waited_ms > config.segment_ms
        is_far = not active.can_hold(header.base_offset + header.last_offset_delta)
        return is_old or is_far or active.is_index_full

    def _append_run(
        self, data: memoryview, run: Sequence[tuple[int, BatchHeader]], run_bytes: int, now_ms: int
    ) -> None:
        if self.offline_reason is not None:
            self.check_online()
        first = run[0][0]
        for _, header in run:
            epoch = header.partition_leader_epoch
            if epoch > self._latest_epoch:  # before the write: an epoch that starts at the log end claims nothing
                self.assign_leader_epoch_start(epoch, header.base_offset)
        segment = self.segments.active
        try:
            written_at = segment.write(data if run_bytes == len(data) else data[first : first + run_bytes])
        except OSError as error:
            raise self.failed(error, path=segment.log_file.path, doing="writing") from error
        producers = self.producers
        for position, header in run:
            base_offset = header.base_offset
            size = header.batch_length + 12
            last_offset = base_offset + header.last_offset_delta
            segment.note_batch(
                position=written_at + position - first,
                size=size,
                base_offset=base_offset,
                last_offset=last_offset,
                max_timestamp_ms=header.max_timestamp,
            )
            self.log_end_offset = producers.end_offset = last_offset + 1
            if header.producer_id >= 0:
                self._update_producer(segment, header, data[position : position + size], now_ms)
        if self.log_end_offset - self.recovery_point >= self._config.flush_messages:
            self.flush()

    def _update_producer(self, segment: LogSegment, header: BatchHeader, data: memoryview, now_ms: int) -> None:
        completed = self.producers.update(header, data, now_ms=now_ms)
        if completed is None:
            return
        if completed.is_aborted:
            stable = self.producers.last_stable_offset_after(completed)
            segment.txn_index.append(
                AbortedTransactionEntry(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        self.producers.complete(completed)
