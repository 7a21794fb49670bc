"""Moves replicas between the log directories of a broker (KIP-113), while they are written and read.

A copy is filled from the log, a megabyte at a time with turns of the loop in between, as a follower fills its log from
its leader: by whole batches, cut by leader epochs if the log was cut meanwhile. When it has everything it takes the
log's place, in one step of the loop, so that no reader sees an intermediate state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker_embedded.common.clock import Clock, client_timer
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import parent
from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.partition import Partition, divergence
from broker_embedded.replication.throttle import ByteBudget
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)

STEP_BYTES = 1_048_576
PAUSE_S = 0.001
"""Between two steps: requests that have arrived meanwhile are answered."""


class LogDirMoves:
    """All moves of one broker. See the module."""

    def __init__(
        self,
        *,
        logs: LogManager,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        bytes_per_second: Callable[[], int],
        on_moved: Callable[[Partition], None],
    ) -> None:
        """`bytes_per_second`: `replica.alter.log.dirs.io.max.bytes.per.second`."""
        self._logs = logs
        self._call_later = client_timer(loop)
        self._on_moved = on_moved
        self._budget = ByteBudget(rate=bytes_per_second, now_ms=clock.monotonic_ms)
        self._moving: dict[TopicPartition, Partition] = {}
        self._timer: asyncio.TimerHandle | None = None

    def move(self, partition: Partition, path: str) -> None:
        """Move a replica to the log directory `path`; its current directory cancels a move in progress."""
        if path not in self._logs.directories.paths:
            raise BrokerError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                f"{path} is no log directory of this broker: {', '.join(self._logs.directories.paths)}",
            )
        if path in self._logs.directories.offline:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {self._logs.directories.offline[path]}"
            )
        partition.log.check_online()
        if parent(partition.log.directory) == path:
            self.cancel(partition)
            return
        if path in self._logs.directories.cordoned:
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned: it gets no new replicas")
        future = self._logs.future(partition.log)
        if future is None or parent(future.directory) != path:
            self._logs.start_move(partition.log, path)
        self._moving[partition.topic_partition] = partition
        self._schedule(PAUSE_S)

    def cancel(self, partition: Partition) -> None:
        """Cancel the move of a replica, which stays in its directory or was deleted."""
        self._moving.pop(partition.topic_partition, None)
        self._logs.cancel_move(partition.log)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._moving.clear()

    def __len__(self) -> int:
        return len(self._moving)

    def _schedule(self, delay_s: float) -> None:
        if self._timer is None and self._moving:
            self._timer = self._call_later(delay_s, self._step)

    def _step(self) -> None:
        """Copy a megabyte of the move that has waited longest."""
        self._timer = None
        if not self._moving:
            return
        topic_partition, partition = next(iter(self._moving.items()))
        if self._budget.is_spent:
            self._schedule(max(self._budget.wait_ms / 1000, PAUSE_S))
            return
        del self._moving[topic_partition]
        try:
            if self._copy_some(partition):
                self._finish(partition)
            else:
                self._moving[topic_partition] = partition
        except (BrokerError, OSError) as error:
            log.error("%s stays in %s, the move failed: %s", topic_partition, parent(partition.log.directory), error)
            self._give_up(partition)
        self._schedule(PAUSE_S)

    def _copy_some(self, partition: Partition) -> bool:
        """Go on with the copy. True if it has everything."""
        source, future = partition.log, self._logs.future(partition.log)
        assert future is not None
        if future.log_end_offset < source.log_start_offset:
            future.truncate_fully_and_start_at(source.log_start_offset)
        self._cut_what_the_log_lost(source, future)
        if future.log_end_offset < source.log_end_offset:
            data = b"".join(source.read(future.log_end_offset, STEP_BYTES).buffers())
            if not data:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"nothing to read at {future.log_end_offset}")
            future.append_as_follower(data)
            self._budget.spend(len(data))
        return future.log_end_offset == source.log_end_offset

    @staticmethod
    def _cut_what_the_log_lost(source: Log, future: Log) -> None:
        """Truncate the copy to what the log still has: as a follower it may have been truncated and have grown
        since."""
        while (epoch := future.latest_leader_epoch) is not None:
            end = source.leader_epoch_end_offset(epoch)
            if end.leader_epoch == epoch and end.end_offset >= future.log_end_offset:
                return
            if end.leader_epoch < 0:
                future.truncate_to(source.log_start_offset)
                return
            future.truncate_to(divergence(future, end.leader_epoch, end.end_offset))

    def _finish(self, partition: Partition) -> None:
        source, future = partition.log, self._logs.future(partition.log)
        assert future is not None
        future.increase_log_start_offset(source.log_start_offset)
        future.update_high_watermark(source.high_watermark)
        for entry in source.leader_epochs:
            future.assign_leader_epoch_start(entry.epoch, entry.start_offset)
        future.update_config(source.config)
        partition.log = self._logs.finish_move(source)
        log.info("%s moved to %s", partition.topic_partition, parent(partition.log.directory))
        self._on_moved(partition)

    def _give_up(self, partition: Partition) -> None:
        try:
            self._logs.cancel_move(partition.log)
        except (BrokerError, OSError) as error:
            log.error("%s: what was copied could not be removed: %s", partition.topic_partition, error)
