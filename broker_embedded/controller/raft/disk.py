"""Storage of a quorum member: metadata log and quorum-state, and the effects that change them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from struct import Struct
from typing import Any

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import FileSystem, read_whole, write_whole
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    CommitEntries,
    Diverged,
    Effect,
    ElectionState,
    SaveState,
    TruncateTo,
)
from broker_embedded.controller.raft.stored_log import StoredLog, encode_records
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.log import Log
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.primitives import encode_uvarint
from ottla_wire.records import record
from ottla_wire.records.control import ControlType

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
        """Perform the effects. Returns whether the log changed."""
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


_KEY = Struct(">hh")  # version, type
_HEAD = Struct(">hi")  # version, leader id
_VOTER = Struct(">ib")  # voter id, no tagged fields


def encode_leader_change(change: AppendLeaderChange, *, now_ms: int) -> bytes:
    """Encode the batch with which a leader begins its epoch: Kafka's LeaderChangeMessage, version 0.

    A control batch at offset 0 without an epoch: the log sets both.
    """
    value = (
        _HEAD.pack(0, change.leader_id) + _voters(change.voters) + _voters(change.granting_voters) + encode_uvarint(0)
    )
    key = _KEY.pack(0, ControlType.LEADER_CHANGE)
    message = record.RecordData(offset=0, timestamp_ms=now_ms, key=key, value=value, headers=())
    return record.encode_batch([message], is_control=True)


def _voters(voters: Sequence[int]) -> bytes:
    """Return a compact array: its length and one."""
    return encode_uvarint(len(voters) + 1) + b"".join(_VOTER.pack(voter, 0) for voter in voters)


FILE_NAME = "quorum-state"
VERSIONS = (0, 1)


class QuorumStateFile:
    """`quorum-state`: a member's vote and epoch, in Kafka's file of that name (JSON, version 0: static voters).

    It is in the metadata log's directory, as in Kafka. It is replaced as a whole and fsynced: a crash leaves the old
    one or the new one.
    """

    def __init__(self, fs: FileSystem, directory: str, *, voters: Sequence[int]) -> None:
        self._fs = fs
        self._path = f"{directory}/{FILE_NAME}"
        self._voters = tuple(voters)

    def read(self) -> ElectionState | None:
        """Return the last saved state; None at the first start. Raises StartupError for an unreadable file."""
        try:
            data = read_whole(self._fs, self._path)
        except FileNotFoundError:
            return None
        try:
            saved = json.loads(data.decode())
            version = saved["data_version"]
            if version not in VERSIONS:
                raise ValueError(f"data_version {version}, wanted 0 or 1")
            return ElectionState(
                epoch=int(saved["leaderEpoch"]), leader_id=int(saved["leaderId"]), voted_id=int(saved["votedId"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StartupError(
                f"{self._path} is not a quorum state ({error}); remove the directory if the other voters have the log"
            ) from None

    def write(self, state: ElectionState) -> None:
        """Replace it, durably."""
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in self._voters],
            "data_version": 0,
        }
        write_whole(self._fs, self._path, json.dumps(content, separators=(",", ":")).encode())
