"""Transactions whose writer and whose decider are two processes (KIP-98, the protocol before KIP-890).

    writer                                     decider
    begin_transaction(id) -> OpenTransaction
    TopicWriter(transaction=...), flush
    hands the OpenTransaction over      ->     add_marker(...), end_transaction(COMMIT)

An `OpenTransaction` is all it takes to end it, so it may travel. Beginning again with the same id aborts what was left
open and fences whoever still holds the old one. A *marker* is a committed offset of a group of its own, written inside
the transaction: whoever comes later sees by it whether the transaction was committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.errors import FencedError, OttlaError, RetriableError
from ottla.topics import TopicPartition, named_topics
from ottla.wire_client.cluster.cluster_client import Cluster, refused
from ottla.wire_client.cluster.coordinator_calls import MOVED, Coordinates, with_coordinator
from ottla.wire_client.errors import PartitionsRefused, WriteForbidden
from ottla.wire_client.group.group_offsets import committed_offsets, offset_topics
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ApiKey, ErrorCode

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS = 600_000
"""How long a transaction may stay open. A broker allows 15 minutes by default."""

_AGAIN = MOVED | {
    ErrorCode.CONCURRENT_TRANSACTIONS,  # the one before it is still being ended
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
_REFUSED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
_NOT_THE_MEMBER = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Outcome(Enum):
    """How a transaction ends."""

    COMMIT = True
    """Readers see the records."""
    ABORT = False
    """Readers of `read_committed` never see the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """Producer id and epoch, for writing into a transaction and ending it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def fields(self) -> dict[str, Any]:
        """Return the fields by which most requests name the transaction."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }


def begin_transaction(
    cluster: Cluster,
    transactional_id: str,
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    after: OpenTransaction | None = None,
) -> OpenTransaction:
    """Fence earlier users of this id, abort their open transaction, and begin. `after`: the caller's own failed
    transaction, whose next one gets its own epoch (KIP-360), or `FencedError` if another producer has begun meanwhile.
    """
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": -1 if after is None else after.producer_id,
        "producer_epoch": -1 if after is None else after.producer_epoch,
    }
    answer = _ask(cluster, transactional_id, ApiKey.INIT_PRODUCER_ID, body, lambda a: [a.error_code])
    return OpenTransaction(
        transactional_id=transactional_id, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


def enlist_partitions(cluster: Cluster, transaction: OpenTransaction, partitions: Iterable[TopicPartition]) -> None:
    """Add partitions to the transaction at the coordinator; needed before the first one does. Raises
    `PartitionsRefused` with those that the transaction may not write to."""
    body = {
        "v3_and_below_transactional_id": transaction.transactional_id,
        "v3_and_below_producer_id": transaction.producer_id,
        "v3_and_below_producer_epoch": transaction.producer_epoch,
        "v3_and_below_topics": named_topics((each, each.partition) for each in sorted(partitions)),
    }

    def codes(answer: Any) -> list[int]:
        found = {
            TopicPartition(topic.name, entry.partition_index): ErrorCode.of(entry.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for entry in topic.results_by_partition
        }
        refused_here = {place: code for place, code in found.items() if code in _REFUSED}
        if refused_here:
            raise PartitionsRefused(refused_here)
        return [int(code) for code in found.values()]

    _ask(cluster, transaction.transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, body, codes)


def add_marker(
    cluster: Cluster,
    transaction: OpenTransaction,
    *,
    group: str,
    place: TopicPartition,
    number: int,
    metadata: str = "",
) -> None:
    """Commit `number` as the group's offset at `place`, when and if the transaction is committed."""
    add_offsets(cluster, transaction, group=group, offsets={place: (number, metadata)})


def add_offsets(
    cluster: Cluster,
    transaction: OpenTransaction,
    *,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
    member: Mapping[str, Any] | None = None,
) -> None:
    """Commit these (offset, metadata) for the group, when and if the transaction is committed.

    `member` is a member's `identity()`: the coordinator then refuses a past generation (KIP-447), which is
    `RetriableError` here: the partitions may be somebody else's.
    """
    body = transaction.fields() | {"group_id": group}
    _ask(cluster, transaction.transactional_id, ApiKey.ADD_OFFSETS_TO_TXN, body, lambda a: [a.error_code])
    body |= {"member_id": "", **(member or {}), "topics": offset_topics(offsets)}

    def codes(answer: Any) -> list[int]:
        return [entry.error_code for topic in answer.topics for entry in topic.partitions]

    _ask(cluster, group, ApiKey.TXN_OFFSET_COMMIT, body, codes, kind=Coordinates.GROUP)


def read_marker(cluster: Cluster, *, group: str, place: TopicPartition) -> tuple[int, str] | None:
    """Return (number, metadata) of the last committed marker. Waits while a transaction is about to decide on it."""
    return committed_offsets(cluster, group, [place]).get(place)


def peek_marker(cluster: Cluster, *, group: str, place: TopicPartition) -> tuple[int, str] | None:
    """Return the marker as `read_marker` does, without waiting for a transaction that is being completed."""
    return committed_offsets(cluster, group, [place], require_stable=False).get(place)


def end_transaction(cluster: Cluster, transaction: OpenTransaction, outcome: Outcome) -> None:
    """Commit or abort. Safe to repeat with the same outcome; `FencedError` when it has timed out or was begun again
    elsewhere."""
    body = transaction.fields() | {"committed": outcome.value}
    _ask(cluster, transaction.transactional_id, ApiKey.END_TXN, body, lambda a: [a.error_code])


def abort_quietly(cluster: Cluster, transaction: OpenTransaction) -> None:
    """Abort after another error, which is the one to raise. What cannot be aborted times out by itself."""
    try:
        end_transaction(cluster, transaction, Outcome.ABORT)
    except OttlaError as error:
        log.debug("transaction %s was not aborted: %s", transaction.transactional_id, error)


def list_open_transactions(cluster: Cluster, *, begins_with: str) -> list[str]:
    """Return the transactional ids with this beginning whose transactions hold records that are not decided, from the
    brokers that answer. Needs Kafka 3.0 (KIP-664), and Describe on the transactional ids."""
    cluster.refresh(())
    found: set[str] = set()
    for node_id in cluster.addresses:
        answer = cluster.ask_broker(node_id).call(
            ApiKey.LIST_TRANSACTIONS, {"state_filters": ["Ongoing"], "producer_id_filters": []}
        )
        found |= {each.transactional_id for each in answer.transaction_states}
    return sorted(name for name in found if name.startswith(begins_with))


def _ask(
    cluster: Cluster,
    key: str,
    api_key: ApiKey,
    body: dict[str, Any],
    codes_of: Callable[[Any], list[int]],
    *,
    kind: Coordinates = Coordinates.TRANSACTION,
) -> Any:
    answers: list[Any] = []

    def attempt(connection: Connection) -> str | None:
        answer = connection.call(api_key, body)
        codes = {ErrorCode.of(code) for code in codes_of(answer)} - {ErrorCode.NONE}
        if codes & _FENCED:
            name = min(code.name for code in codes & _FENCED)
            raise FencedError(
                f"transaction {body.get('transactional_id') or key}: the broker answered {name} to {api_key.name}: it"
                " has timed out (transaction.timeout.ms), or a newer attempt took over"
            )
        if codes & _NOT_THE_MEMBER:
            name = min(code.name for code in codes & _NOT_THE_MEMBER)
            raise RetriableError(
                f"group {key}: its coordinator answered {name}: the partitions may belong to other members by now"
            )
        for code in codes & _FORBIDDEN:
            raise WriteForbidden(f"transaction {key}: the broker returned {code.name} to {api_key.name}")
        for code in codes - _AGAIN:
            raise refused(f"transaction {key}: {api_key.name}", code)
        if codes:
            return ", ".join(sorted(code.name for code in codes))
        answers.append(answer)
        return None

    with_coordinator(cluster, kind, key, attempt)
    return answers[-1]
