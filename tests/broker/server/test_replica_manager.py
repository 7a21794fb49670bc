"""Appends, acknowledgements and who is told about leadership, on a file system in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.records import (
    ChangePartition,
    CreatePartition,
    CreateTopic,
    MetadataRecord,
    RemoveTopic,
    ResourceType,
    SetConfig,
)
from broker_embedded.replication.leadership import AppendResult
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

TOPIC_ID = bytes(range(16))
T0 = TopicPartition("t", 0)


class Node:
    """A replica manager, its metadata and a listener that writes down what it is told."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.fs = MemoryFileSystem()
        self.logs = LogManager(["/data"], fs=self.fs, clock=clock)
        self.metadata = MetadataCache("c")
        self.replicas = ReplicaManager(
            node_id=1,
            config=BrokerConfig(),
            clock=clock,
            loop=asyncio.get_running_loop(),
            metadata=self.metadata,
            logs=self.logs,
        )
        self.told: list[tuple[str, TopicPartition, int]] = []
        self.results: list[AppendResult] = []

    def on_leader(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        assert self.logs.get(*topic_partition) is not None, "the log is open when the listener is called"
        self.told.append(("leader", topic_partition, leader_epoch))

    def on_follower(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self.told.append(("follower", topic_partition, leader_epoch))

    def replay(self, *records: MetadataRecord) -> None:
        self.metadata.replay(records, offset=self.metadata.image.offset + len(records), epoch=1, controller_id=1)

    def make_topic(self, *, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1, 2)) -> None:
        self.replay(
            CreateTopic(name="t", topic_id=TOPIC_ID),
            CreatePartition(topic_id=TOPIC_ID, partition=0, replicas=replicas, isr=isr, leader=1),
        )

    def append(self, *, acks: int = -1, timeout_ms: int = 60_000) -> None:
        record = RecordData(offset=0, timestamp_ms=1_700_000_000_000, key=b"k", value=b"v", headers=())
        self.replicas.append(
            T0, encode_batch([record]), acks=acks, timeout_ms=timeout_ms, on_complete=self.results.append
        )

    def replicate_to(self, offset: int) -> None:
        """What a follower's fetch will do: the high watermark passes, and who waits for it looks again."""
        partition = self.replicas.leader_partition(T0)
        partition.log.update_high_watermark(offset)
        self.replicas.produces.notify(T0)


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture(autouse=True)
def closed(node: Node) -> Iterator[None]:
    yield
    node.replicas.close()
    node.logs.close()


async def test_a_leader_alone_in_the_isr_acknowledges_at_once(node: Node) -> None:
    node.make_topic()
    node.append()
    (result,) = node.results
    assert (result.error, result.base_offset, result.last_offset) == (ErrorCode.NONE, 0, 0)
    assert node.replicas.leader_partition(T0).high_watermark == 1


async def test_acks_all_waits_for_the_isr_and_acks_1_does_not(node: Node) -> None:
    node.make_topic(isr=(1, 2))
    node.append(acks=1)
    assert len(node.results) == 1
    node.append(acks=-1)
    assert len(node.results) == 1
    node.replicate_to(1)
    assert len(node.results) == 1, "the high watermark has not passed the second record"
    node.replicate_to(2)
    assert [(each.error, each.base_offset) for each in node.results] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


async def test_acks_all_times_out_and_the_record_stays(node: Node) -> None:
    node.make_topic(isr=(1, 2))
    done = asyncio.Event()
    node.results = _Results(done)
    node.append(timeout_ms=5)
    await asyncio.wait_for(done.wait(), 10)
    assert [each.error for each in node.results] == [ErrorCode.REQUEST_TIMED_OUT]
    assert node.replicas.leader_partition(T0).log.log_end_offset == 1


class _Results(list[AppendResult]):
    def __init__(self, done: asyncio.Event) -> None:
        super().__init__()
        self._done = done

    def append(self, result: AppendResult) -> None:
        super().append(result)
        self._done.set()


async def test_a_leader_that_resigns_tells_who_waits(node: Node) -> None:
    node.make_topic(isr=(1, 2))
    node.append()
    node.replay(ChangePartition(topic_id=TOPIC_ID, partition=0, leader=2))
    assert [each.error for each in node.results] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_too_few_in_sync_replicas_refuse_before_anything_is_appended(node: Node) -> None:
    node.make_topic()
    node.replay(SetConfig(resource_type=ResourceType.TOPIC, resource_name="t", name="min.insync.replicas", value="2"))
    node.append()
    assert [each.error for each in node.results] == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert node.replicas.leader_partition(T0).log.log_end_offset == 0


async def test_listeners_hear_of_leading_resigning_and_deleting(node: Node) -> None:
    node.make_topic()
    node.replicas.add_leadership_listener(node)
    node.replay(ChangePartition(topic_id=TOPIC_ID, partition=0, leader=1))
    node.replay(ChangePartition(topic_id=TOPIC_ID, partition=0, leader=2))
    node.replay(ChangePartition(topic_id=TOPIC_ID, partition=0, leader=1))
    node.replay(RemoveTopic(topic_id=TOPIC_ID))
    assert node.told == [
        ("leader", T0, 0),
        ("leader", T0, 1),
        ("follower", T0, 2),
        ("leader", T0, 3),
        ("follower", T0, 3),
    ]
    assert node.logs.get("t", 0) is None


async def test_what_is_not_led_here_is_refused_by_its_reason(node: Node) -> None:
    node.make_topic()
    node.replay(ChangePartition(topic_id=TOPIC_ID, partition=0, leader=2))
    with pytest.raises(BrokerError) as moved:
        node.replicas.leader_partition(T0)
    assert moved.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(BrokerError) as unknown:
        node.replicas.leader_partition(TopicPartition("t", 9))
    assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_made_again_under_its_name_starts_empty(node: Node) -> None:
    node.make_topic()
    node.append()
    other_id = bytes(15) + b"\x01"
    node.replay(
        RemoveTopic(topic_id=TOPIC_ID),
        CreateTopic(name="t", topic_id=other_id),
        CreatePartition(topic_id=other_id, partition=0, replicas=(1,), isr=(1,), leader=1),
    )
    assert node.replicas.leader_partition(T0).log.log_end_offset == 0


async def test_a_directory_of_a_deleted_topic_of_the_same_name_is_replaced_when_it_is_opened(node: Node) -> None:
    node.logs.get_or_create("t", 0, bytes(15) + b"\x07")
    node.make_topic()
    node.append()
    assert [each.base_offset for each in node.results] == [0]
