"""Offsets of a consumer group in transactions, with what aiokafka leaves out of its requests (KIP-447).

It commits a transaction's offsets without the member and its generation, so that a consumer that has lost a partition
could still commit for it; and it reads a group's offsets without waiting for transactions that are about to decide on
them. Both requests are here in the versions that have it, written with aiokafka's own types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import errors
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as ClientPartition

from ottla.aio.aiokafka_internals import (
    ask_group,
    coordinator_of,
    fetch_group_offsets_by,
    find_coordinator,
    forget_coordinator,
    sender_of,
    transactions_of,
)
from ottla.errors import ConfigError, RetriableError
from ottla.records import TopicPartition
from ottla.retrying import NotYet, try_again_async

_FIRST_S: Final = 0.02
_LONGEST_S: Final = 0.2
_NONE: Final = 0
_MOVED: Final = frozenset({7, 15, 16})  # REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_LATER: Final = frozenset({3, 14, 51})
"""UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS."""
_NOT_A_MEMBER: Final = frozenset({22, 25, 27, 82})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
_UNSTABLE: Final = 88  # UNSTABLE_OFFSET_COMMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalMember:
    """A member of a group in one of its generations."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None


_TEXT: Final = CompactString("utf-8")
_TAGS: Final = ("tags", TaggedFields)


def _topics(*partition: Any) -> tuple[str, CompactArray]:
    return ("topics", CompactArray(("name", _TEXT), ("partitions", CompactArray(*partition, _TAGS)), _TAGS))


class _TxnOffsetCommitResponse(Response):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), _topics(("partition", Int32), ("error_code", Int16)), _TAGS)


class _TxnOffsetCommitStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 28
    API_VERSION = 3
    RESPONSE_TYPE = _TxnOffsetCommitResponse
    SCHEMA = Schema(
        ("transactional_id", _TEXT),
        ("group_id", _TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", _TEXT),
        ("group_instance_id", _TEXT),
        _topics(("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", _TEXT)),
        _TAGS,
    )


class _OffsetFetchResponse(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("partition", Int32),
            ("offset", Int64),
            ("leader_epoch", Int32),
            ("metadata", _TEXT),
            ("error_code", Int16),
        ),
        ("error_code", Int16),
        _TAGS,
    )


class _OffsetFetchStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", _TEXT),
        ("topics", CompactArray(("name", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
        ("require_stable", Boolean),
        _TAGS,
    )


class _TxnOffsetCommit(Request[_TxnOffsetCommitStruct]):  # type: ignore[misc]
    """Its fields are known at once; aiokafka builds it when it knows the broker's versions."""

    API_KEY = 28

    def __init__(self, *fields: Any) -> None:
        self._fields = fields

    def build(self, struct: Any) -> Any:
        return struct(*self._fields, {})


class _OffsetFetch(Request[_OffsetFetchStruct]):  # type: ignore[misc]
    API_KEY = 9

    def __init__(self, *fields: Any) -> None:
        self._fields = fields

    def build(self, struct: Any) -> Any:
        return struct(*self._fields, {})


async def commit_in_transaction(
    client: Any, offsets: Mapping[TopicPartition, int], member: TransactionalMember
) -> None:
    """Commit these offsets with the open transaction of an aiokafka producer, if the member still has its generation.

    Raises `RetriableError` when it has not. Waits while the coordinators do not answer.
    """
    sender, manager = sender_of(client), transactions_of(client)
    producer = (manager.transactional_id, manager.producer_id, manager.producer_epoch)

    async def ask(kind: Any, key: str, request: Any) -> Any:
        node = await find_coordinator(sender, kind, key)
        try:
            return await client.client.send(node, request, group=ConnectionGroup.COORDINATION)
        except NotImplementedError:
            raise ConfigError("send_offsets: found a broker older than Kafka 2.5, wanted TxnOffsetCommit v3") from None
        except (errors.NodeNotReadyError, errors.RequestTimedOutError):
            forget_coordinator(sender, kind)
            return None

    async def until_taken(kind: Any, key: str, request: Any, codes_of: Any) -> None:
        async def attempt() -> None:
            answer = await ask(kind, key, request)
            codes = {7} if answer is None else codes_of(answer) - {_NONE}
            if not codes:
                return
            if codes & _NOT_A_MEMBER:
                raise RetriableError(
                    f"send_offsets: group {member.group!r} has given partitions to others since the records were taken"
                )
            for code in codes - _MOVED - _LATER:
                raise errors.for_code(code)()
            if codes & _MOVED:
                forget_coordinator(sender, kind)
            raise NotYet(f"{key}: error codes {sorted(codes)}")

        await try_again_async(attempt, what="offsets of a transaction", first_s=_FIRST_S, longest_s=_LONGEST_S)

    await until_taken(
        CoordinationType.TRANSACTION,
        manager.transactional_id,
        AddOffsetsToTxnRequest(*producer, member.group),
        lambda answer: {answer.error_code},
    )
    manager.consumer_group_added(member.group)  # or aiokafka takes the transaction for empty, and ends it unasked
    by_topic: dict[str, list[tuple[Any, ...]]] = {}
    for name, offset in offsets.items():
        by_topic.setdefault(name.topic, []).append((name.partition, offset, -1, "", {}))
    await until_taken(
        CoordinationType.GROUP,
        member.group,
        _TxnOffsetCommit(
            manager.transactional_id,
            member.group,
            *producer[1:],
            member.generation,
            member.member_id,
            member.instance_id,
            [(topic, partitions, {}) for topic, partitions in by_topic.items()],
        ),
        lambda answer: {code for _, partitions, _ in answer.topics for _, code, _ in partitions},
    )


def read_stable_offsets(consumer: Any) -> None:
    """Have an aiokafka consumer wait, where it asks for its group's offsets, for transactions that are about to decide
    on them. It would begin at the older ones, and repeat what those transactions wrote."""
    coordinator = coordinator_of(consumer)

    async def fetch(partitions: Any) -> dict[Any, Any]:
        by_topic: dict[str, list[int]] = {}
        for name in partitions:
            by_topic.setdefault(name.topic, []).append(name.partition)
        topics: list[Any] = [(topic, numbers, {}) for topic, numbers in by_topic.items()]
        try:
            answer = await ask_group(coordinator, _OffsetFetch(coordinator.group_id, topics, True))
        except NotImplementedError:
            text = "commit=InTransactions(): found a broker older than Kafka 2.5, wanted OffsetFetch v7"
            raise ConfigError(text) from None
        found: dict[Any, Any] = {}
        _check(coordinator, answer.error_code)
        for topic, entries, _ in answer.topics:
            for partition, offset, _, metadata, code, _ in entries:
                _check(coordinator, code)
                if offset >= 0:
                    found[ClientPartition(topic, partition)] = OffsetAndMetadata(offset, metadata or "")
        return found

    fetch_group_offsets_by(consumer, fetch)


def _check(coordinator: Any, code: int) -> None:
    if code in (_NONE, 3):  # a partition that is not there has no offset
        return
    if code in _MOVED:
        coordinator.coordinator_dead()
        raise errors.GroupCoordinatorNotAvailableError()
    if code in _LATER or code == _UNSTABLE:
        raise errors.GroupLoadInProgressError()  # asked again after a pause
    if code == errors.GroupAuthorizationFailedError.errno:
        raise errors.GroupAuthorizationFailedError(coordinator.group_id)
    raise errors.for_code(code)()
