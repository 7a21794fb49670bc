"""Storage of a quorum member: metadata log and quorum-state, and the effects that change them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    CommitEntries,
    Diverged,
    Effect,
    SaveState,
    TruncateTo,
)
from broker_embedded.controller.raft.leader_change import encode_leader_change
from broker_embedded.controller.raft.quorum_state import QuorumStateFile
from broker_embedded.controller.raft.stored_log import StoredLog, encode_records
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.log import Log
from ottla_wire.protocol import ErrorCode

logger = logging.getLogger(__name__)


class QuorumDisk:
    """Everything is durable when a method returns. After KAFKA_STORAGE_ERROR or OSError a change may be partial."""

    def __init__(self, log: Log, fs: FileSystem, *, node_id: int, voters: Sequence[int], clock: Clock) -> None:
        self.view = StoredLog(log)
        self.state_file = QuorumStateFile(fs, log.directory, voters=voters)
        self._log = log
        self._node_id = node_id
        self._clock = clock

    def append(self, records: Sequence[MetadataRecord], *, epoch: int) -> int:
        """Append one batch as the leader of `epoch`; returns its last offset."""
        data = encode_records(records, now_ms=self._clock.now_ms())
        return self.view.append(data, epoch=epoch).last_offset

    def committed(self, start_offset: int, end_offset: int) -> CommittedBatch:
        """Return the committed records between the offsets as one batch."""
        batches = list(self.view.committed(start_offset, end_offset))
        records = [record for batch in batches for record in batch.records]
        return CommittedBatch(records, batches[-1].last_offset, batches[-1].epoch)

    def perform(self, effect: Effect) -> bool:
        """Returns whether the log changed."""
        match effect:
            case SaveState():
                self.state_file.write(effect.state)
            case AppendLeaderChange():
                self.view.append(encode_leader_change(effect, now_ms=self._clock.now_ms()), epoch=effect.epoch)
                return True
            case AppendFetched():
                self._append_fetched(effect.batches)
                return True
            case TruncateTo():
                logger.info("node %d: the metadata log is truncated to %d", self._node_id, effect.offset)
                self._log.truncate_to(effect.offset)
                return True
            case CommitEntries():
                self._log.update_high_watermark(effect.high_watermark)
            case Diverged():
                logger.error("node %d: %s", self._node_id, effect.message)
        return False

    def _append_fetched(self, batches: Any) -> None:
        try:
            self._log.append_as_follower(batches)
        except BrokerError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            logger.warning("node %d: fetched again: %s", self._node_id, error)  # damaged on its way
        else:
            self._log.flush()
