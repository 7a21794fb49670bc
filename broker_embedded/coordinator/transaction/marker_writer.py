"""Writes the end of a transaction into a partition that this broker leads: one control batch, once.

A coordinator that did not hear our answer sends its marker again; so does one that took over in the middle. A marker
that would change nothing is therefore not appended a second time: it is answered when the first one is replicated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import GROUP_METADATA_TOPIC, TopicPartition
from broker_embedded.replication.leadership import AppendResult
from broker_embedded.replication.partition import Partition
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.storage.producer_entry import NO_OFFSET, ProducerEntry
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.control import ControlType, encode_end_txn_marker
from ottla_wire.records.record import RecordData, encode_batch

from .transaction import EPOCH_BUMPED_AT_EVERY_END, ProducerIdentity

REPLICATION_TIMEOUT_MS = 30_000

OnWritten = Callable[[ErrorCode], None]


@fact
class TransactionMarker:
    producer: ProducerIdentity
    committed: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """2 and later: the marker's epoch exceeds the epoch of the transaction that it ends (KIP-890)."""


class OffsetsOfTransactions(Protocol):
    """The group coordinator: offsets that a transaction committed count, or are dropped, when its marker is there."""

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None: ...


class MarkerWriter:
    def __init__(self, *, replicas: ReplicaManager, clock: Clock, offsets: OffsetsOfTransactions) -> None:
        self._replicas = replicas
        self._clock = clock
        self._offsets = offsets

    def write(self, partition: TopicPartition, marker: TransactionMarker, on_done: OnWritten) -> None:
        """Append, and call back when every in-sync replica has the marker; refusals arrive there too."""
        try:
            leader = self._replicas.leader_partition(partition)
        except BrokerError as error:
            on_done(error.code)
            return
        entry = leader.log.producers.entries.get(marker.producer.producer_id)
        if entry is not None:
            if _is_from_before(entry, marker):
                on_done(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            if _says_nothing_new(entry, marker):
                entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
                self._when_replicated(
                    leader, entry.last_marker_offset + 1, partial(self._is_there, partition, marker, on_done)
                )
                return

        def appended(result: AppendResult) -> None:
            self._is_there(partition, marker, on_done, result.error)

        self._replicas.append(partition, self._encode(marker), acks=-1, on_complete=appended)

    def _is_there(
        self, partition: TopicPartition, marker: TransactionMarker, on_done: OnWritten, error: ErrorCode
    ) -> None:
        """Report that the marker is on every in-sync replica, or failed. Also for a marker whose first write timed
        out.
        """
        if error is ErrorCode.NONE and partition.topic == GROUP_METADATA_TOPIC:
            self._offsets.end_transaction(partition.partition, marker.producer.producer_id, committed=marker.committed)
        on_done(error)

    def _when_replicated(self, leader: Partition, end_offset: int, on_done: OnWritten) -> None:
        if leader.high_watermark >= end_offset:
            on_done(ErrorCode.NONE)
            return

        def waited(timed_out: bool) -> None:
            on_done(self._replicas.acknowledgement(leader, end_offset, timed_out=timed_out))

        self._replicas.wait_for_replication(
            {leader.topic_partition: (leader, end_offset)}, timeout_ms=REPLICATION_TIMEOUT_MS, on_done=waited
        )

    def _encode(self, marker: TransactionMarker) -> bytes:
        kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
        key, value = encode_end_txn_marker(kind, marker.coordinator_epoch)
        record = RecordData(offset=0, timestamp_ms=self._clock.now_ms(), key=key, value=value, headers=())
        return encode_batch(
            [record],
            producer_id=marker.producer.producer_id,
            producer_epoch=marker.producer.epoch,
            is_transactional=True,
            is_control=True,
        )


def _has_open_transaction(entry: ProducerEntry) -> bool:
    return entry.current_transaction_first_offset != NO_OFFSET


def _is_from_before(entry: ProducerEntry, marker: TransactionMarker) -> bool:
    """Return a late marker of an earlier transaction. Where epochs rise with every end, an open transaction's marker is
    above its epoch."""
    is_strict = marker.transaction_version >= EPOCH_BUMPED_AT_EVERY_END
    return is_strict and _has_open_transaction(entry) and marker.producer.epoch <= entry.producer_epoch


def _says_nothing_new(entry: ProducerEntry, marker: TransactionMarker) -> bool:
    return (
        not _has_open_transaction(entry)
        and entry.producer_epoch == marker.producer.epoch
        and marker.coordinator_epoch >= entry.coordinator_epoch
    )
