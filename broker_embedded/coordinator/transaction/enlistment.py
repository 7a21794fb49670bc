"""Asks the coordinator of a transactional id, here or on another broker, on behalf of a leader that is about to append.

A leader that took a late batch of a transaction that has ended would leave it open for ever, and readers would wait for
ever (KIP-890). So before the first batch of a transaction it asks whether the partition is part of it, or, for a client
that does not say so itself, makes it part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from enum import Enum

from broker_embedded.common.peers import Peers
from broker_embedded.common.types import TopicPartition
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

from .requests import AddPartitions, PartitionsChecked
from .transaction import EPOCH_BUMPED_AT_EVERY_END, ProducerIdentity

REQUEST_VERSION = 5
CHANNEL = "txn-verify"

OnChecked = Callable[[PartitionsChecked], None]


class Enlisting(Enum):
    """The client leaves it to the leader to add partitions."""

    VERIFY = "verify"
    """The client has added its partitions itself."""
    ADD = "add"
    """transaction.version 2: the leader adds them."""


class Enlistment:
    """`check` and `add` are the local coordinator's; `leader_of` says where a transactional id lives, None if
    nowhere."""

    def __init__(
        self,
        *,
        node_id: int,
        leader_of: Callable[[str], int | None],
        verify: Callable[[AddPartitions], PartitionsChecked],
        add: Callable[[AddPartitions, OnChecked], None],
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._leader_of = leader_of
        self._verify = verify
        self._add = add
        self._peers = peers

    def ask(
        self,
        how: Enlisting,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        on_done: OnChecked,
    ) -> None:
        """Ask the coordinator. `on_done` is called before this returns if it is here and has nothing to write."""
        request = AddPartitions(
            transactional_id=transactional_id,
            producer=producer,
            partitions=frozenset(partitions),
            client_version=EPOCH_BUMPED_AT_EVERY_END,
        )
        leader = self._leader_of(transactional_id)
        if leader is None:
            on_done(PartitionsChecked(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif leader == self._node_id:
            if how is Enlisting.ADD:
                self._add(request, on_done)
            else:
                on_done(self._verify(request))
        else:
            self._ask_peer(leader, how, request, on_done)

    def _ask_peer(self, leader: int, how: Enlisting, request: AddPartitions, on_done: OnChecked) -> None:
        topics: dict[str, list[int]] = {}
        for topic, number in request.partitions:
            topics.setdefault(topic, []).append(number)
        transaction = {
            "transactional_id": request.transactional_id,
            "producer_id": request.producer.producer_id,
            "producer_epoch": request.producer.epoch,
            "verify_only": how is Enlisting.VERIFY,
            "topics": [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()],
        }
        future = self._peers.send(
            leader, ApiKey.ADD_PARTITIONS_TO_TXN, REQUEST_VERSION, {"transactions": [transaction]}, channel=CHANNEL
        )

        def answered(done: asyncio.Future[Message]) -> None:
            if done.cancelled() or done.exception() is not None:
                on_done(PartitionsChecked(error=ErrorCode.NETWORK_EXCEPTION))
                return
            response = done.result()
            if response.error_code:
                on_done(PartitionsChecked(error=ErrorCode(response.error_code)))
            else:
                on_done(PartitionsChecked(partitions=_errors_of(response), error=ErrorCode.NETWORK_EXCEPTION))

        future.add_done_callback(answered)


def _errors_of(response: Message) -> Mapping[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
