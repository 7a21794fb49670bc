"""Shards and their partitions: replayed in slices, gone with the leadership, replayed again if an append failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.runtime.runtime import CoordinatorRuntime
from broker_embedded.coordinator.runtime.shard import CoordinatorRecord, ShardContext
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.replication.broker_parts import BrokerParts
from broker_embedded.replication.leadership import AppendResult
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.control import ControlType, encode_end_txn_marker
from ottla_wire.records.record import RecordData, encode_batch

TOPIC = "__internal"
PARTITION = TopicPartition(TOPIC, 0)


class MemoryLog:
    """Batches in memory; reads as a log does: from the batch that holds the offset, whole batches."""

    topic = TOPIC
    partition = 0

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.reads = 0
        self.is_broken = False

    def write(self, *records: tuple[bytes, bytes | None], **batch: Any) -> None:
        data = [
            RecordData(offset=self.log_end_offset + number, timestamp_ms=1, key=key, value=value, headers=[])
            for number, (key, value) in enumerate(records)
        ]
        self.batches.append(encode_batch(data, base_offset=self.log_end_offset, **batch))
        self.log_end_offset += len(records)

    def read(self, offset: int, max_bytes: int) -> Any:
        self.reads += 1
        if self.is_broken:
            return SimpleNamespace(buffers=lambda: [b"\x00" * 20])
        found = b""
        for batch in self.batches:
            _, header = next(iter_batches(batch))
            if header.next_offset > offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return SimpleNamespace(buffers=lambda: [found])


class Replicas:
    """The replica manager's part: one partition, led or not; appends succeed, fail or wait."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.is_leader = True
        self.fail_with = ErrorCode.NONE
        self.held: list[Callable[[AppendResult], None]] = []
        self.holds = False

    def partition(self, topic_partition: TopicPartition) -> Any:
        return SimpleNamespace(is_leader=self.is_leader, log=self.log)

    leader_partition = partition

    def append(self, topic_partition: TopicPartition, batch: bytes, *, acks: int, on_complete: Any) -> None:
        assert acks == -1, "answered only when every in-sync replica has it"
        if self.holds:
            self.held.append(on_complete)
        else:
            on_complete(AppendResult(topic_partition=topic_partition, error=self.fail_with))


class Shard:
    """Remembers what it is told."""

    def __init__(self, partition: int, context: ShardContext) -> None:
        self.context = context
        self.state: dict[bytes, bytes | None] = {}
        self.seen: list[tuple[Any, ...]] = []
        self.is_loaded = False
        self.unloaded_with: ErrorCode | None = None

    def replay(self, record: CoordinatorRecord, *, timestamp_ms: int, producer_id: int) -> None:
        self.state[record.key] = record.value
        self.seen.append(("record", record.key, producer_id))

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.seen.append(("end", producer_id, committed))

    def on_loaded(self) -> None:
        self.is_loaded = True

    def unload(self, error: ErrorCode) -> None:
        self.unloaded_with = error


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


@pytest.fixture
async def runtime(replicas: Replicas) -> CoordinatorRuntime[Shard]:
    return CoordinatorRuntime(
        TOPIC,
        BrokerParts(
            node_id=1,
            config=BrokerConfig,
            replicas=replicas,
            metadata=MetadataCache("c"),
            clock=ManualClock(),
            loop=asyncio.get_running_loop(),
            peers=None,
        ),
        make_shard=Shard,
        slice_bytes=200,
    )


async def loaded(runtime: CoordinatorRuntime[Shard]) -> Shard:
    for _ in range(1_000):  # turns of the loop
        if not runtime.is_loading:
            break
        await asyncio.sleep(0)
    return runtime.shard(0)


def error_of(runtime: CoordinatorRuntime[Shard], partition: int = 0) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        runtime.shard(partition)
    return refused.value.code


async def test_an_empty_partition_is_served_at_once(runtime):
    runtime.on_leader(PARTITION, 1)
    assert runtime.shard(0).is_loaded


async def test_a_partition_that_is_not_led_has_its_coordinator_elsewhere(runtime):
    assert error_of(runtime) is ErrorCode.NOT_COORDINATOR


async def test_another_topic_is_nobodys_business(runtime):
    runtime.on_leader(TopicPartition("t", 0), 1)
    runtime.on_follower(TopicPartition("t", 0), 1)
    assert error_of(runtime) is ErrorCode.NOT_COORDINATOR


async def test_a_long_log_is_replayed_in_slices_and_refused_until_then(runtime, replicas):
    for number in range(20):
        replicas.log.write((b"key-%d" % (number % 7), b"%d" % number), (b"other", None))
    runtime.on_leader(PARTITION, 1)
    assert error_of(runtime) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shard = await loaded(runtime)
    assert replicas.log.reads > 3
    assert shard.state == {b"other": None, **{b"key-%d" % key: b"%d" % max(range(key, 20, 7)) for key in range(7)}}


async def test_records_below_the_start_of_the_log_are_skipped(runtime, replicas):
    replicas.log.write((b"deleted", b"1"), (b"kept", b"2"))
    replicas.log.log_start_offset = 1
    runtime.on_leader(PARTITION, 1)
    assert (await loaded(runtime)).state == {b"kept": b"2"}


async def test_transactions_and_their_ends_reach_the_shard_in_order(runtime, replicas):
    replicas.log.write((b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        marker = encode_end_txn_marker(kind, 0)
        replicas.log.write(marker, producer_id=5, producer_epoch=0, is_transactional=True, is_control=True)
    replicas.log.write((b"b", b"1"), producer_id=6, producer_epoch=0, base_sequence=0)
    runtime.on_leader(PARTITION, 1)
    assert (await loaded(runtime)).seen == [
        ("record", b"a", 5),
        ("end", 5, False),
        ("end", 5, True),
        ("record", b"b", -1),
    ]


async def test_a_log_that_cannot_be_read_is_not_served_and_does_not_look_like_loading(runtime, replicas, caplog):
    replicas.log.write((b"a", b"1"))
    replicas.log.is_broken = True
    with caplog.at_level(logging.ERROR):
        runtime.on_leader(PARTITION, 1)
    assert error_of(runtime) is ErrorCode.NOT_COORDINATOR
    assert "cannot be replayed" in caplog.text


async def test_a_shard_goes_with_the_leadership_and_tells_who_waits(runtime):
    runtime.on_leader(PARTITION, 1)
    shard = runtime.shard(0)
    runtime.on_follower(PARTITION, 2)
    assert shard.unloaded_with is ErrorCode.NOT_COORDINATOR
    assert error_of(runtime) is ErrorCode.NOT_COORDINATOR


async def test_a_leader_that_is_elected_again_keeps_its_memory(runtime):
    runtime.on_leader(PARTITION, 1)
    shard = runtime.shard(0)
    runtime.on_leader(PARTITION, 2)
    assert runtime.shard(0) is shard


async def test_leadership_lost_while_loading_ends_the_loading(runtime, replicas):
    for _ in range(20):
        replicas.log.write((b"k" * 50, b"v"))
    runtime.on_leader(PARTITION, 1)
    runtime.on_follower(PARTITION, 2)
    reads = replicas.log.reads
    for _ in range(5):
        await asyncio.sleep(0)
    assert replicas.log.reads == reads
    assert error_of(runtime) is ErrorCode.NOT_COORDINATOR


async def test_a_shard_that_asks_is_replayed_from_the_log(runtime, replicas):
    runtime.on_leader(PARTITION, 1)
    ahead = runtime.shard(0)
    replicas.log.write((b"a", b"in the log"))
    ahead.context.reload("its append failed")
    ahead.context.reload("and another")
    await asyncio.sleep(0)
    assert ahead.unloaded_with is ErrorCode.NOT_COORDINATOR
    assert runtime.shard(0) is not ahead
    assert runtime.shard(0).state == {b"a": b"in the log"}


async def test_a_shard_that_asks_after_the_leadership_is_lost_is_not_replayed(runtime, replicas):
    runtime.on_leader(PARTITION, 1)
    runtime.shard(0).context.reload("its append failed")
    replicas.is_leader = False
    await asyncio.sleep(0)
    assert error_of(runtime) is ErrorCode.NOT_COORDINATOR


async def test_an_append_is_answered_when_the_replicas_have_it_or_with_the_error(runtime, replicas):
    runtime.on_leader(PARTITION, 1)
    answers: list[ErrorCode] = []
    record = CoordinatorRecord(b"k", b"v")
    runtime.shard(0).context.append([record], answers.append)
    replicas.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    runtime.shard(0).context.append([record], answers.append)
    replicas.holds = True
    runtime.shard(0).context.append([record], answers.append)
    assert answers == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    replicas.held[0](AppendResult(topic_partition=PARTITION))
    assert answers[2] is ErrorCode.NONE


async def test_an_append_that_outlives_its_shard_is_answered_as_no_longer_led(runtime, replicas):
    """Even if it succeeded: the shard that could act on it is gone, and the client has to find the next one."""
    runtime.on_leader(PARTITION, 1)
    answers: list[ErrorCode] = []
    replicas.holds = True
    runtime.shard(0).context.append([CoordinatorRecord(b"k", b"v")], answers.append)
    runtime.on_follower(PARTITION, 2)
    replicas.held[0](AppendResult(topic_partition=PARTITION))
    assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_timer_of_a_shard_that_is_gone_does_nothing(runtime):
    runtime.on_leader(PARTITION, 1)
    fired: list[int] = []
    context = runtime.shard(0).context
    context.call_at(context.monotonic_ms(), lambda: fired.append(1))
    runtime.close()
    await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    assert fired == []
    runtime.on_leader(PARTITION, 2)
    context = runtime.shard(0).context
    done = asyncio.Event()
    context.call_at(context.monotonic_ms(), done.set)
    await asyncio.wait_for(done.wait(), 10)


# -- what the transaction coordinator needs


async def test_records_of_a_transaction_carry_their_producer(runtime, replicas):
    runtime.on_leader(PARTITION, 1)
    shard = await loaded(runtime)
    batches: list[bytes] = []
    errors: list[ErrorCode] = []

    def append(topic_partition: TopicPartition, batch: bytes, *, acks: int, on_complete: Any) -> None:
        batches.append(batch)
        on_complete(AppendResult(topic_partition=topic_partition))

    replicas.append = append
    records = [CoordinatorRecord(b"k", b"v")]
    shard.context.append_in_transaction(records, errors.append, producer_id=7, producer_epoch=3)
    shard.context.append(records, errors.append)
    headers = [next(iter_batches(batch))[1] for batch in batches]
    assert [(each.producer_id, each.producer_epoch, each.is_transactional) for each in headers] == [
        (7, 3, True),
        (-1, -1, False),
    ]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE]


class ReplicatedLater:
    """A leader whose followers are behind until the test lets them catch up."""

    def __init__(self, replicas: Replicas) -> None:
        self.log = replicas.log
        self.is_leader = True
        self.high_watermark = 0
        self.leader_epoch = 4
        self.waits: list[Callable[[bool], None]] = []
        replicas.leader_partition = lambda _: self
        replicas.wait_for_replication = lambda _, *, timeout_ms, on_done: self.waits.append(on_done)

    def look_again(self, *, timed_out: bool = False) -> None:
        waits, self.waits = self.waits, []
        for on_done in waits:
            on_done(timed_out)


async def test_who_asks_is_told_when_all_replicas_have_what_was_replayed(runtime, replicas):
    replicas.log.write((b"k", b"v"))
    leader = ReplicatedLater(replicas)
    runtime.on_leader(PARTITION, 4)
    shard = await loaded(runtime)
    told: list[str] = []
    shard.context.when_replicated(lambda: told.append("replicated"))
    leader.look_again(timed_out=True)
    assert told == [], "it goes on waiting"
    leader.high_watermark = 1
    leader.look_again()
    assert told == ["replicated"]
    shard.context.when_replicated(lambda: told.append("at once"))
    assert told == ["replicated", "at once"]
    assert shard.context.leader_epoch() == 4


async def test_nobody_is_told_after_the_leadership_is_gone(runtime, replicas):
    replicas.log.write((b"k", b"v"))
    leader = ReplicatedLater(replicas)
    runtime.on_leader(PARTITION, 4)
    shard = await loaded(runtime)
    told: list[str] = []
    shard.context.when_replicated(lambda: told.append("replicated"))
    runtime.on_follower(PARTITION, 5)
    leader.high_watermark = 1
    leader.look_again()
    assert told == []
