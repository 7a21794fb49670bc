"""Who keeps the metadata log. One interface, so that a raft quorum can take the place of the single voter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata import serde
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.log import AppendOrigin, Log
from ottla_wire.protocol import ErrorCode
from ottla_wire.records import batch, record

log = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024


class CommittedBatch(NamedTuple):
    """Records that a majority of the quorum has, in log order. `last_offset` is that of the last one."""

    records: Sequence[MetadataRecord]
    last_offset: int
    epoch: int


class MetadataQuorum(Protocol):
    """The metadata log as the controller and the brokers see it."""

    @property
    def leader_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def append(self, records: Sequence[MetadataRecord], on_commit: Callable[[], None]) -> None:
        """Append as the leader, atomically. `on_commit` runs after every subscriber has got the batch."""
        ...

    def subscribe(self, subscriber: Callable[[CommittedBatch], None]) -> None:
        """Give `subscriber` everything committed so far, then each batch as it commits."""
        ...


class SingleVoterQuorum:
    """A quorum of one: appended is committed. Each start is a new epoch, which fences what an earlier start wrote."""

    def __init__(self, *, voter_id: int, metadata_log: Log, clock: Clock) -> None:
        self._voter_id = voter_id
        self._log = metadata_log
        self._clock = clock
        self._subscribers: list[Callable[[CommittedBatch], None]] = []
        self._committed: list[CommittedBatch] = []
        self._load()
        self._epoch = max((each.epoch for each in self._committed), default=0) + 1

    @property
    def leader_id(self) -> int:
        return self._voter_id

    @property
    def epoch(self) -> int:
        return self._epoch

    def append(self, records: Sequence[MetadataRecord], on_commit: Callable[[], None]) -> None:
        if records:
            now_ms = self._clock.now_ms()
            data = bytearray(
                record.encode_batch(
                    [
                        record.RecordData(
                            offset=index, timestamp_ms=now_ms, key=None, value=serde.encode(each), headers=()
                        )
                        for index, each in enumerate(records)
                    ]
                )
            )
            info = self._log.append_as_leader(
                memoryview(data), leader_epoch=self._epoch, origin=AppendOrigin.COORDINATOR
            )
            self._log.flush()  # a quorum of one has committed when its disk has: nobody else could bring it back
            self._log.update_high_watermark(self._log.log_end_offset)
            committed = CommittedBatch(tuple(records), info.last_offset, self._epoch)
            self._committed.append(committed)
            for subscriber in self._subscribers:
                subscriber(committed)
        on_commit()

    def subscribe(self, subscriber: Callable[[CommittedBatch], None]) -> None:
        if self._committed:  # as one batch: what was made and removed again leaves no trace, and opens no log
            history = [record for committed in self._committed for record in committed.records]
            last = self._committed[-1]
            subscriber(CommittedBatch(history, last.last_offset, last.epoch))
        self._subscribers.append(subscriber)

    def _load(self) -> None:
        """Read the log from its start. What cannot be read is an error: metadata is never guessed."""
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            data = b"".join(self._log.read(offset, READ_BYTES).buffers())
            position = 0
            for header in batch.iter_headers(data):
                self._committed.append(self._decode(data, position, header))
                position += header.size_in_bytes
                offset = header.next_offset
            if position == 0:
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be read at offset {offset}")

    @staticmethod
    def _decode(data: bytes, position: int, header: batch.BatchHeader) -> CommittedBatch:
        records = [serde.decode(each.value) for each in record.decode_batch(data, position) if each.value is not None]
        known = [each for each in records if each is not None]
        return CommittedBatch(known, header.last_offset, header.partition_leader_epoch)
