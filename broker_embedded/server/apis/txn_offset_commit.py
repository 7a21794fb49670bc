"""TxnOffsetCommit (key 28), versions 0 to 6: offsets that count when the producer's transaction is committed.

Asked of the group's coordinator. From version 3 on the member and its generation are checked, so that a member removed
from the group cannot commit (KIP-447). The coordinator of the transaction confirms first that the group's offsets are
part of it; version 5 (transaction.version 2) adds them itself, version 6 names topics by id. Until the transaction
ends, requests for stable offsets get a retriable error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import GROUP_METADATA_TOPIC, TopicPartition
from broker_embedded.coordinator.group.requests import CommitOffsets, OffsetsCommitted
from broker_embedded.coordinator.transaction.enlistment import Enlisting
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from broker_embedded.server.handling.offset_commits import commit_body, sort_out
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.handling.transaction_guard import enlist
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import (
        HasFaults,
        HasGroups,
        HasLoop,
        HasMetadata,
        HasReplicas,
        HasTransactions,
    )

    class Needs(HasLoop, HasMetadata, HasReplicas, HasGroups, HasTransactions, HasFaults, Protocol): ...


FIRST_WITH_ABORTABLE_ERROR = 4
FIRST_WITH_IMPLICIT_ADD = 5


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return commit_body(request, None, OffsetsCommitted(error=error.code), {})


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    groups = ctx.services.groups
    groups.shard_of(request.group_id)
    commits, reply = sort_out(ctx, ApiKey.TXN_OFFSET_COMMIT, request)
    if not commits:
        return response_of(reply)
    commit = CommitOffsets(
        group_id=request.group_id,
        partitions=commits,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    offsets = TopicPartition(GROUP_METADATA_TOPIC, groups.partition_of(request.group_id))

    def checked(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        error = _error_in_version(errors.get(offsets, ErrorCode.NONE), ctx.api_version)
        if error is not ErrorCode.NONE:
            reply.settle(OffsetsCommitted(error=error))
            return
        try:
            groups.shard_of(request.group_id).commit_offsets(commit, reply)
        except BrokerError as refusal:
            reply.settle(OffsetsCommitted(error=refusal.code))

    how = Enlisting.ADD if ctx.api_version >= FIRST_WITH_IMPLICIT_ADD else Enlisting.VERIFY
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    enlist(ctx.services, how, request.transactional_id, producer, [offsets], checked)
    return response_of(reply)


def _error_in_version(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error code for the producer's version."""
    match error:
        case ErrorCode.NETWORK_EXCEPTION | ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
            # Of the transaction's coordinator; this is the group's, and it has to be asked again.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case ErrorCode.CONCURRENT_TRANSACTIONS if version < FIRST_WITH_IMPLICIT_ADD:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if version < FIRST_WITH_ABORTABLE_ERROR:
            return ErrorCode.INVALID_TXN_STATE
    return error
