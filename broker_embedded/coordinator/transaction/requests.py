"""Requests to the coordinator and its responses, without wire versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from broker_embedded.common.types import TopicPartition
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from .transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity

NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@fact
class InitProducer:
    transactional_id: str
    timeout_ms: int
    claimed: ProducerIdentity | None = None
    """The producer's previous identity (KIP-360)."""


@fact
class EndTransaction:
    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    client_version: int
    """transaction.version: 2 and later bump the epoch."""


@fact
class AddPartitions:
    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    client_version: int = 0


@fact
class Identified:
    """Success with the identity to go on with, or an error."""

    error: ErrorCode = ErrorCode.NONE
    identity: ProducerIdentity = NOBODY


@fact
class PartitionsChecked:
    """One error for all partitions, or one each."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)

    def error_of(self, partition: TopicPartition) -> ErrorCode:
        return self.partitions.get(partition, self.error)
