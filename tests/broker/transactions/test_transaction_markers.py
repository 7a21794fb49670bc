"""Markers on their way to leaders: batched per broker, tried again until everybody has one, never to what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from broker_embedded.common.peers import PeerUnavailable
from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.coordinator.transaction.marker_writer import TransactionMarker
from broker_embedded.coordinator.transaction.markers import Ending, MarkerOutcome, MarkerSender
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.image import PartitionImage, TopicImage
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.protocol.message import Message

ME, OTHER, THIRD = 1, 2, 3
MINE, THEIRS, ALSO_THEIRS, OF_THIRD = (TopicPartition("t", number) for number in range(4))
NONE = ErrorCode.NONE


class Leaders:
    """The other brokers: requests wait until the test answers them."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Message, asyncio.Future[Message]]] = []

    def send(self, node: int, api: ApiKey, version: int, body: Mapping[str, Any], **_: Any) -> asyncio.Future[Message]:
        request = codec.decode_request(api, version, codec.encode_request(api, version, dict(body)), 0)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.requests.append((node, request, future))
        return future

    def partitions_asked(self) -> list[tuple[int, set[TopicPartition]]]:
        return [(node, {each for _, each in _partitions(request)}) for node, request, _ in self.requests]

    def answer(self, error: ErrorCode = NONE, *, only: TopicPartition | None = None) -> None:
        """Answer the oldest request: all its partitions with `error`, or `only` one and the others with success."""
        _, request, future = self.requests.pop(0)
        markers = [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": number,
                                "error_code": int(
                                    error if only in (None, TopicPartition(topic.name, number)) else NONE
                                ),
                            }
                            for number in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
        encoded = codec.encode_response(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": markers})
        future.set_result(codec.decode_response(ApiKey.WRITE_TXN_MARKERS, 2, encoded, 0))

    def hang_up(self) -> None:
        self.requests.pop(0)[2].set_exception(PeerUnavailable("cut"))


def _partitions(request: Message) -> list[tuple[int, TopicPartition]]:
    return [
        (marker.producer_id, TopicPartition(topic.name, number))
        for marker in request.markers
        for topic in marker.topics
        for number in topic.partition_indexes
    ]


class Writer:
    """This broker's own partitions."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, TransactionMarker]] = []
        self.answers: list[ErrorCode] = []

    def write(self, partition: TopicPartition, marker: TransactionMarker, on_done: Callable[[ErrorCode], None]) -> None:
        self.written.append((partition, marker))
        on_done(self.answers.pop(0) if self.answers else NONE)


class World:
    def __init__(self) -> None:
        self.metadata = MetadataCache("c")
        self.leaders = Leaders()
        self.writer = Writer()
        self.sender = MarkerSender(
            node_id=ME,
            metadata=self.metadata,
            writer=self.writer,  # type: ignore[arg-type]
            loop=asyncio.get_running_loop(),
            peers=self.leaders,  # type: ignore[arg-type]
        )
        self.outcomes: list[tuple[str, MarkerOutcome]] = []
        self.lead({MINE: ME, THEIRS: OTHER, ALSO_THEIRS: OTHER, OF_THIRD: THIRD})

    def lead(self, leaders: dict[TopicPartition, int]) -> None:
        states = {
            each.partition: PartitionImage(
                partition=each.partition, replicas=(1,), isr=(1,), leader=leader, leader_epoch=0, partition_epoch=0
            )
            for each, leader in leaders.items()
        }
        topics = {"t": TopicImage(name="t", topic_id=b"t" * 16, partitions=states)} if states else {}
        self.metadata.image = replace(self.metadata.image, topics=topics)
        self.sender.on_metadata()

    def send(
        self, *partitions: TopicPartition, name: str = "x", producer_id: int = 7, state_partition: int = 0
    ) -> None:
        ending = Ending(
            state_partition=state_partition,
            transactional_id=name,
            producer=ProducerIdentity(producer_id, 3),
            committed=True,
            partitions=frozenset(partitions),
            coordinator_epoch=9,
            client_version=2,
        )
        self.sender.send(ending, lambda outcome: self.outcomes.append((name, outcome)))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110  # a condition of the test, not an event of the sender
                await asyncio.sleep(0.002)


@pytest.fixture
async def world() -> World:
    return World()


async def test_what_is_led_here_is_written_at_once(world: World):
    world.send(MINE)
    assert world.outcomes == [("x", MarkerOutcome.WRITTEN)]
    ((partition, marker),) = world.writer.written
    assert partition == MINE
    assert (marker.producer, marker.committed, marker.coordinator_epoch) == (ProducerIdentity(7, 3), True, 9)


async def test_every_other_leader_gets_one_request(world: World):
    world.send(MINE, THEIRS, ALSO_THEIRS, OF_THIRD)
    assert sorted(world.leaders.partitions_asked()) == [(OTHER, {THEIRS, ALSO_THEIRS}), (THIRD, {OF_THIRD})]
    (marker,) = world.leaders.requests[0][1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (9, 2)
    world.leaders.answer()
    await asyncio.sleep(0)
    assert world.outcomes == []
    world.leaders.answer()
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.WRITTEN)])


async def test_what_gathers_behind_a_request_goes_with_the_next(world: World):
    for number in range(5):
        world.send(THEIRS, name=f"x{number}", producer_id=number)
    assert len(world.leaders.requests) == 1
    world.leaders.answer()
    await world.until(lambda: len(world.outcomes) == 1 and len(world.leaders.requests) == 1)
    assert [producer for producer, _ in _partitions(world.leaders.requests[0][1])] == [1, 2, 3, 4]
    world.leaders.answer()
    await world.until(lambda: len(world.outcomes) == 5)


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
async def test_only_what_failed_is_sent_again(world: World, error: ErrorCode):
    world.send(THEIRS, ALSO_THEIRS)
    world.leaders.answer(error, only=THEIRS)
    await world.until(lambda: bool(world.leaders.requests))
    assert world.leaders.partitions_asked() == [(OTHER, {THEIRS})]
    world.leaders.answer()
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.WRITTEN)])


async def test_a_leader_that_does_not_answer_is_asked_again(world: World):
    world.send(THEIRS)
    world.leaders.hang_up()
    await world.until(lambda: bool(world.leaders.requests))
    world.leaders.answer()
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.WRITTEN)])


async def test_the_new_leader_is_told(world: World):
    world.send(THEIRS)
    world.leaders.hang_up()
    await asyncio.sleep(0)
    world.lead({THEIRS: THIRD})
    assert world.leaders.partitions_asked() == [(THIRD, {THEIRS})]


async def test_a_partition_without_a_leader_waits_for_one(world: World):
    world.lead({MINE: NO_LEADER})
    world.send(MINE)
    assert world.outcomes == []
    world.lead({MINE: ME})
    assert world.outcomes == [("x", MarkerOutcome.WRITTEN)]


async def test_a_partition_that_is_gone_holds_nothing_up(world: World):
    world.send(THEIRS, MINE)
    world.leaders.hang_up()
    await asyncio.sleep(0)
    world.lead({})
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.WRITTEN)])
    assert world.leaders.requests == []


async def test_a_local_refusal_is_tried_again(world: World):
    world.writer.answers = [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.send(MINE)
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.WRITTEN)])
    assert len(world.writer.written) == 2


async def test_a_partition_with_a_later_epoch_needs_no_marker(world: World):
    world.send(THEIRS)
    world.leaders.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.WRITTEN)])


async def test_one_leader_that_knows_a_newer_coordinator_ends_it(world: World):
    world.send(THEIRS, ALSO_THEIRS)
    world.leaders.answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED, only=THEIRS)
    await world.until(lambda: world.outcomes == [("x", MarkerOutcome.FENCED)])


async def test_what_was_forgotten_is_neither_sent_nor_answered(world: World):
    world.send(THEIRS, name="first", producer_id=1)
    world.send(THEIRS, name="second", producer_id=2)
    world.send(THEIRS, name="third", producer_id=3, state_partition=1)
    world.sender.forget(0)
    world.leaders.answer()
    await world.until(lambda: bool(world.leaders.requests))
    assert [producer for producer, _ in _partitions(world.leaders.requests[0][1])] == [3]
    world.leaders.answer()
    await world.until(lambda: world.outcomes == [("third", MarkerOutcome.WRITTEN)])
