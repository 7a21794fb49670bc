"""A leader asks the coordinator of a transaction, also when that is another broker, and acts on what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker_embedded.common.peers import PeerUnavailable
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.transaction.enlistment import Enlisting, Enlistment
from broker_embedded.coordinator.transaction.requests import AddPartitions, PartitionsChecked
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.protocol.message import Message

ME, OTHER = 1, 2
PRODUCER = ProducerIdentity(7, 3)
P0, P1, Q0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("q", 0)


class World:
    """Where the coordinator is, what it is asked, and what it says."""

    def __init__(self) -> None:
        self.leader: int | None = ME
        self.local: list[tuple[str, AddPartitions]] = []
        self.remote: list[tuple[int, Message]] = []
        self.says = PartitionsChecked()
        self.failure: Exception | None = None
        self.enlistment = Enlistment(
            node_id=ME,
            leader_of=lambda _: self.leader,
            verify=self._verify,
            add=self._add,
            peers=self,  # type: ignore[arg-type]
        )

    def _verify(self, request: AddPartitions) -> PartitionsChecked:
        self.local.append(("verify", request))
        return self.says

    def _add(self, request: AddPartitions, on_done: Any) -> None:
        self.local.append(("add", request))
        on_done(self.says)

    def send(self, node: int, api: ApiKey, version: int, body: Mapping[str, Any], **_: Any) -> asyncio.Future[Message]:
        request = codec.decode_request(api, version, codec.encode_request(api, version, dict(body)), 0)
        self.remote.append((node, request))
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        (asked,) = request.transactions
        response = {
            "error_code": int(self.says.error),
            "results_by_transaction": [
                {
                    "transactional_id": asked.transactional_id,
                    "topic_results": [
                        {
                            "name": topic.name,
                            "results_by_partition": [
                                {
                                    "partition_index": number,
                                    "partition_error_code": int(self.says.error_of(TopicPartition(topic.name, number))),
                                }
                                for number in topic.partitions
                            ],
                        }
                        for topic in asked.topics
                    ],
                }
            ],
        }
        future.set_result(codec.decode_response(api, version, codec.encode_response(api, version, response), 0))
        return future

    async def ask(self, how: Enlisting, *partitions: TopicPartition) -> PartitionsChecked:
        answers: list[PartitionsChecked] = []
        self.enlistment.ask(how, "x", PRODUCER, partitions, answers.append)
        async with asyncio.timeout(20):
            while not answers:  # noqa: ASYNC110  # a callback of the next turns of the loop
                await asyncio.sleep(0)
        return answers[0]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("how", list(Enlisting))
async def test_a_coordinator_that_is_here_is_asked_without_a_request(world: World, how: Enlisting):
    world.says = PartitionsChecked(partitions={P0: ErrorCode.TRANSACTION_ABORTABLE})
    answer = await world.ask(how, P0, P1)
    assert answer.error_of(P0) is ErrorCode.TRANSACTION_ABORTABLE
    assert answer.error_of(P1) is ErrorCode.NONE
    ((asked, request),) = world.local
    assert (asked, request.producer, request.partitions) == (how.value, PRODUCER, {P0, P1})
    assert world.remote == []


@pytest.mark.parametrize("how", list(Enlisting))
async def test_a_coordinator_elsewhere_is_asked_over_the_wire(world: World, how: Enlisting):
    world.leader = OTHER
    world.says = PartitionsChecked(partitions={P1: ErrorCode.CONCURRENT_TRANSACTIONS})
    answer = await world.ask(how, P0, P1, Q0)
    assert [answer.error_of(each) for each in (P0, P1, Q0)] == [
        ErrorCode.NONE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NONE,
    ]
    ((node, request),) = world.remote
    (asked,) = request.transactions
    assert node == OTHER
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("x", 7, 3)
    assert asked.verify_only is (how is Enlisting.VERIFY)
    assert {topic.name: sorted(topic.partitions) for topic in asked.topics} == {"t": [0, 1], "q": [0]}


async def test_without_an_answer_nothing_is_confirmed(world: World):
    world.leader = OTHER
    world.failure = PeerUnavailable("cut")
    assert (await world.ask(Enlisting.VERIFY, P0)).error_of(P0) is ErrorCode.NETWORK_EXCEPTION
    world.failure = None
    world.says = PartitionsChecked(error=ErrorCode.NOT_COORDINATOR)
    assert (await world.ask(Enlisting.VERIFY, P0)).error_of(P0) is ErrorCode.NOT_COORDINATOR


async def test_without_a_coordinator_nothing_is_confirmed(world: World):
    world.leader = None
    assert (await world.ask(Enlisting.ADD, P0)).error_of(P0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.local == []
