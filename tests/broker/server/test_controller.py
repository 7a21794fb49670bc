"""What the controller checks before it writes records, and where it puts replicas."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.controller import brokers, placement, topic_names
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.heartbeats import BrokerHeartbeat
from broker_embedded.controller.requests import ConfigChange, ConfigOperation, NewPartitions, NewTopic
from broker_embedded.metadata.delta import MetadataDelta, image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import (
    BrokerRegistrationChange,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    MetadataRecord,
    RegisterBroker,
    ResourceType,
)
from ottla_wire.protocol import ErrorCode


class MemoryQuorum:
    """A quorum that commits at once and keeps nothing on disk."""

    leader_id = 1
    epoch = 1
    is_leader = True

    def __init__(self) -> None:
        self.records: list[MetadataRecord] = []
        self._subscribers: list[Callable[[CommittedBatch], None]] = []

    def silence_of(self, node: int) -> int:
        return 0

    def append(self, records: Sequence[MetadataRecord], on_done: Callable[[BrokerError | None], None]) -> None:
        if records:
            self.records += records
            for subscriber in self._subscribers:
                subscriber(CommittedBatch(records, len(self.records) - 1, self.epoch))
        on_done(None)

    def subscribe(self, subscriber: Callable[[CommittedBatch], None]) -> None:
        self._subscribers.append(subscriber)

    def add_leadership_listener(self, listener: Callable[[bool, int], None]) -> None:
        listener(True, self.epoch)


def registration(node: int) -> RegisterBroker:
    return RegisterBroker(
        broker_id=node, incarnation_id=bytes(16), broker_epoch=node, host="localhost", port=9000 + node
    )


async def controller_with(nodes: int, **settings: object) -> Controller:
    controller = Controller(
        cluster_id="c",
        quorum=MemoryQuorum(),
        config=BrokerConfig.from_settings({name.replace("_", "."): value for name, value in settings.items()}),
        random=Random(1),
        loop=asyncio.get_running_loop(),
        clock=ManualClock(),
    )
    for node in range(1, nodes + 1):
        epoch = await controller.lives.register(registration(node), cluster_id="c")
        await controller.lives.heartbeat(BrokerHeartbeat(broker_id=node, broker_epoch=epoch, metadata_offset=epoch))
    return controller


async def create(controller: Controller, topic: NewTopic, *, validate_only: bool = False) -> ErrorCode:
    (result,) = await controller.create_topics([topic], validate_only=validate_only)
    return ErrorCode.NONE if result.error is None else result.error.code


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        (NewTopic(name="fine", partitions=3, replication_factor=2), ErrorCode.NONE),
        (NewTopic(name="defaults"), ErrorCode.NONE),
        (NewTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"retention.hours": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", assignments={0: [3, 1], 1: [2, 3]}), ErrorCode.NONE),
        (NewTopic(name="t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", partitions=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_topic_is_created_or_refused_with_kafkas_error(topic: NewTopic, wanted: ErrorCode) -> None:
    controller = await controller_with(3)
    assert await create(controller, topic) == wanted
    assert (topic.name in controller.image.topics) == (wanted == ErrorCode.NONE)


async def test_validating_a_topic_creates_nothing() -> None:
    controller = await controller_with(1)
    assert await create(controller, NewTopic(name="t"), validate_only=True) == ErrorCode.NONE
    assert controller.image.topics == {}


async def test_a_name_is_taken_once_and_dots_and_underscores_collide() -> None:
    controller = await controller_with(1)
    assert await create(controller, NewTopic(name="a.b")) == ErrorCode.NONE
    assert await create(controller, NewTopic(name="a.b")) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert await create(controller, NewTopic(name="a_b")) == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_of_one_request_are_checked_against_each_other_and_spread_over_the_brokers() -> None:
    controller = await controller_with(3)
    wanted = [NewTopic(name=name) for name in ("a.b", "a_b", "c", "d")]
    results = await controller.create_topics(wanted, validate_only=False)
    assert [result.error is None for result in results] == [True, False, True, True]
    assert sorted(topic.partitions[0].leader for topic in controller.image.topics.values()) == [1, 2, 3]


async def test_auto_created_topics_take_the_brokers_defaults() -> None:
    controller = await controller_with(2, num_partitions=5, default_replication_factor=2)
    await create(controller, NewTopic(name="t"))
    partitions = controller.image.topics["t"].partitions
    assert len(partitions) == 5
    assert {len(state.replicas) for state in partitions.values()} == {2}


async def test_all_live_replicas_of_a_new_partition_are_in_sync_and_the_first_one_leads() -> None:
    controller = await controller_with(3)
    await create(controller, NewTopic(name="t", partitions=6, replication_factor=3))
    for state in controller.image.topics["t"].partitions.values():
        assert (state.isr, state.leader) == (state.replicas, state.replicas[0])


async def test_a_fenced_broker_gets_a_replica_when_there_are_too_few_others_but_is_not_in_sync() -> None:
    controller = await controller_with(3)
    await controller.fence_brokers([2])
    assert await create(controller, NewTopic(name="t", partitions=6, replication_factor=3)) == ErrorCode.NONE
    for state in controller.image.topics["t"].partitions.values():
        assert sorted(state.replicas) == [1, 2, 3]
        assert sorted(state.isr) == [1, 3]
        assert state.leader in (1, 3)
    assert await create(controller, NewTopic(name="u", assignments={0: [2]})) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await create(controller, NewTopic(name="u", assignments={0: [2, 3]})) == ErrorCode.NONE
    assert controller.image.topics["u"].partitions[0].leader == 3


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (NewPartitions(name="t", count=4), ErrorCode.NONE),
        (NewPartitions(name="t", count=2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions(name="t", count=1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions(name="nope", count=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions(name="t", count=3, assignments=[[2]]), ErrorCode.NONE),
        (NewPartitions(name="t", count=4, assignments=[[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_topic_grows_and_never_shrinks(wanted: NewPartitions, error: ErrorCode) -> None:
    controller = await controller_with(3)
    await create(controller, NewTopic(name="t", partitions=2))
    (outcome,) = await controller.create_partitions([wanted], validate_only=False)
    assert (ErrorCode.NONE if outcome is None else outcome.code) == error
    assert len(controller.image.topics["t"].partitions) == (wanted.count if outcome is None else 2)


def change(name: str, operation: ConfigOperation, value: str | None) -> ConfigChange:
    return ConfigChange(resource_type=ResourceType.TOPIC, resource_name="t", operations=[(name, operation, value)])


async def test_settings_are_set_appended_subtracted_and_deleted_one_by_one() -> None:
    controller = await controller_with(1)
    await create(controller, NewTopic(name="t"))
    steps = [
        (change("cleanup.policy", ConfigOperation.APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (change("cleanup.policy", ConfigOperation.SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        (
            change("retention.ms", ConfigOperation.SET, "1000"),
            {"cleanup.policy": "compact", "retention.ms": "1000"},
        ),
        (change("cleanup.policy", ConfigOperation.DELETE, None), {"retention.ms": "1000"}),
    ]
    for step, wanted in steps:
        assert await controller.change_configs([step], validate_only=False) == [None]
        assert dict(controller.image.config_overrides(ResourceType.TOPIC, "t")) == wanted


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (change("retention.ms", ConfigOperation.SET, "soon"), ErrorCode.INVALID_CONFIG),
        (change("retention.ms", ConfigOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (change("retention.ms", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (change("nope", ConfigOperation.SET, "1"), ErrorCode.INVALID_CONFIG),
        (
            ConfigChange(resource_type=ResourceType.TOPIC, resource_name="other", operations=[]),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            ConfigChange(
                resource_type=ResourceType.BROKER,
                resource_name="",
                operations=[("socket.request.max.bytes", ConfigOperation.SET, "1")],
            ),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_a_wrong_setting_is_refused_and_changes_nothing(wrong: ConfigChange, error: ErrorCode) -> None:
    controller = await controller_with(1)
    await create(controller, NewTopic(name="t"))
    (outcome,) = await controller.change_configs([wrong], validate_only=False)
    assert outcome is not None
    assert outcome.code == error
    assert controller.image.configs == {}


async def test_replacing_settings_returns_the_unnamed_ones_to_their_defaults() -> None:
    controller = await controller_with(1)
    await create(controller, NewTopic(name="t", configs={"retention.ms": "1", "segment.bytes": "1000"}))
    replacement = ConfigChange(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        operations=[("segment.bytes", ConfigOperation.SET, "2000")],
        replaces_all=True,
    )
    await controller.change_configs([replacement], validate_only=False)
    assert dict(controller.image.config_overrides(ResourceType.TOPIC, "t")) == {"segment.bytes": "2000"}


async def test_producer_ids_are_never_handed_out_twice() -> None:
    controller = await controller_with(2)
    brokers = controller.image.brokers
    blocks = [await controller.allocate_producer_ids(node, brokers[node].epoch) for node in (1, 2, 1)]
    numbers = [number for block in blocks for number in block]
    assert len(set(numbers)) == len(numbers) == 3000


def image_with(*records: MetadataRecord) -> ClusterImage:
    delta = MetadataDelta(ClusterImage(cluster_id="c"))
    delta.replay_all(records)
    return delta.apply(offset=0, epoch=1, controller_id=1)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_leaders_and_replicas_are_spread_evenly(nodes: int) -> None:
    image = image_with(*[registration(node) for node in range(1, nodes + 1)])
    placed = placement.place(image, partitions=nodes * 4, replication_factor=min(3, nodes))
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {4}
    assert all(len(set(replicas)) == min(3, nodes) for replicas in placed)
    shares = Counter(node for replicas in placed for node in replicas)
    assert max(shares.values()) - min(shares.values()) <= nodes


def test_a_partition_of_a_lost_broker_is_led_by_the_next_in_sync_replica_or_by_nobody() -> None:
    topic_id = bytes(16)
    image = image_with(
        *[registration(node) for node in (1, 2, 3)],
        CreateTopic(name="t", topic_id=topic_id),
        CreatePartition(topic_id=topic_id, partition=0, replicas=(1, 2, 3), isr=(1, 3), leader=1),
        CreatePartition(topic_id=topic_id, partition=1, replicas=(1, 2), isr=(1,), leader=1),
        CreatePartition(topic_id=topic_id, partition=2, replicas=(2, 1), isr=(2, 1), leader=2),
    )
    records = brokers.fence(image, [1], config=BrokerConfig())
    assert records == [
        BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=True),
        ChangePartition(topic_id=topic_id, partition=0, leader=3, isr=(3,)),
        ChangePartition(topic_id=topic_id, partition=1, leader=-1),
        ChangePartition(topic_id=topic_id, partition=2, isr=(2,)),
    ]
    back = brokers.unfence(image_after(image, records), 1, config=BrokerConfig())
    assert back == [
        BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=False),
        ChangePartition(topic_id=topic_id, partition=1, leader=1),
    ]


@pytest.mark.parametrize("name", [".", "..", "", "a b", "ä", "x" * 250])
def test_names_that_no_topic_can_have_are_explained(name: str) -> None:
    assert topic_names.problem_with(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_a_topic_can_have(name: str) -> None:
    assert topic_names.problem_with(name) is None
