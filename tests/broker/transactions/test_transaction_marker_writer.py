"""A marker is written once, whoever sends it how often, and what depends on it happens when it is replicated."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.transaction.marker_writer import MarkerWriter, TransactionMarker
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from broker_embedded.replication.leadership import AppendResult
from broker_embedded.storage.producer_entry import NO_OFFSET, ProducerEntry
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import parse_header
from ottla_wire.records.control import ControlType, decode_end_txn_marker
from ottla_wire.records.record import decode_batch

OFFSETS = TopicPartition("__consumer_offsets", 2)
PRODUCER = ProducerIdentity(7, 3)


class Leader:
    """A partition of this broker, as far as markers concern it, and the group coordinator behind it."""

    def __init__(self) -> None:
        self.topic_partition = OFFSETS
        self.entries: dict[int, ProducerEntry] = {}
        self.log = SimpleNamespace(producers=self)
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.replicates = True
        self.waits: list[Callable[[bool], None]] = []
        self.refusal: BrokerError | None = None
        self.ended: list[tuple[int, int, bool]] = []
        self.writer = MarkerWriter(replicas=self, clock=ManualClock(), offsets=self)  # type: ignore[arg-type]

    # -- the replica manager

    def leader_partition(self, _: TopicPartition) -> Leader:
        if self.refusal is not None:
            raise self.refusal
        return self

    def append(self, partition: TopicPartition, batch: bytes, *, acks: int, on_complete: Any) -> None:
        assert acks == -1
        header = parse_header(batch)
        entry = self.entries.setdefault(header.producer_id, ProducerEntry(header.producer_id, used_at_ms=0))
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = self.marker(batch).coordinator_epoch
        entry.last_marker_offset = len(self.batches)
        entry.current_transaction_first_offset = NO_OFFSET
        self.batches.append(batch)
        if self.replicates:
            self.high_watermark = len(self.batches)
        error = ErrorCode.NONE if self.replicates else ErrorCode.REQUEST_TIMED_OUT
        on_complete(AppendResult(topic_partition=partition, error=error))

    def wait_for_replication(self, _: Any, *, timeout_ms: int, on_done: Callable[[bool], None]) -> None:
        self.waits.append(on_done)

    def acknowledgement(self, _: Any, end_offset: int, *, timed_out: bool) -> ErrorCode:
        return ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NONE

    # -- the group coordinator

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.ended.append((partition, producer_id, committed))

    # -- the test

    def write(self, marker: TransactionMarker | None = None) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        self.writer.write(OFFSETS, marker or marker_of(), told.append)
        return told

    def opens(self, epoch: int) -> None:
        """A batch of a transaction."""
        entry = self.entries.setdefault(PRODUCER.producer_id, ProducerEntry(PRODUCER.producer_id, used_at_ms=0))
        entry.set_epoch(epoch)
        entry.current_transaction_first_offset = len(self.batches)

    @staticmethod
    def marker(batch: bytes) -> Any:
        (record,) = decode_batch(batch)
        return decode_end_txn_marker(record.key, record.value)


def marker_of(
    *, committed: bool = True, coordinator_epoch: int = 5, version: int = 1, epoch: int = 3
) -> TransactionMarker:
    return TransactionMarker(
        producer=ProducerIdentity(PRODUCER.producer_id, epoch),
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_a_control_batch_and_ends_what_the_group_coordinator_holds(leader: Leader, committed: bool):
    leader.opens(3)
    assert leader.write(marker_of(committed=committed)) == [ErrorCode.NONE]
    (batch,) = leader.batches
    header = parse_header(batch)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*PRODUCER, -1)
    marker = leader.marker(batch)
    assert marker == (ControlType.COMMIT if committed else ControlType.ABORT, 5)
    assert leader.ended == [(OFFSETS.partition, PRODUCER.producer_id, committed)]


def test_a_marker_that_comes_again_is_not_written_again(leader: Leader):
    leader.opens(3)
    assert [leader.write() for _ in range(3)] == [[ErrorCode.NONE]] * 3
    assert len(leader.batches) == 1


def test_a_marker_that_timed_out_counts_when_it_is_replicated(leader: Leader):
    leader.opens(3)
    leader.replicates = False
    assert leader.write() == [ErrorCode.REQUEST_TIMED_OUT]
    assert leader.ended == []
    told = leader.write()
    assert told == [], "written already, and still not replicated"
    leader.high_watermark = 1
    (on_done,) = leader.waits
    on_done(False)
    assert told == [ErrorCode.NONE]
    assert leader.ended == [(OFFSETS.partition, PRODUCER.producer_id, True)]
    assert len(leader.batches) == 1


def test_the_next_transaction_of_the_same_epoch_gets_its_own_marker(leader: Leader):
    leader.opens(3)
    leader.write()
    leader.opens(3)
    assert leader.write(marker_of(committed=False)) == [ErrorCode.NONE]
    assert len(leader.batches) == 2


def test_the_marker_of_a_newer_coordinator_fences_the_older_without_being_written(leader: Leader):
    leader.opens(3)
    leader.write()
    assert leader.write(marker_of(coordinator_epoch=6)) == [ErrorCode.NONE]
    assert len(leader.batches) == 1
    assert leader.entries[PRODUCER.producer_id].coordinator_epoch == 6


def test_a_late_marker_cannot_end_the_transaction_after_its_own(leader: Leader):
    leader.opens(4)
    assert leader.write(marker_of(version=2, epoch=4)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert leader.batches == []
    assert leader.write(marker_of(version=2, epoch=5)) == [ErrorCode.NONE]


def test_a_producer_that_never_wrote_here_is_fenced_by_the_marker(leader: Leader):
    assert leader.write() == [ErrorCode.NONE]
    assert leader.entries[PRODUCER.producer_id].producer_epoch == PRODUCER.epoch


def test_a_partition_led_elsewhere_says_so(leader: Leader):
    leader.refusal = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leader.write() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
