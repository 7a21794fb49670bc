"""OffsetCommit (key 8), versions 2 to 10: store a group's offsets in `__consumer_offsets`.

Answered when the log has them. Versions 2 to 4 may set a retention time; 9 and later use member epochs (KIP-848), 10
names topics by id. Offsets of a partition that does not exist are refused, partition by partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.requests import CommitOffsets, OffsetsCommitted
from broker_embedded.server.handling.offset_commits import commit_body, sort_out
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasFaults, HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, HasFaults, Protocol): ...


FIRST_WITH_MEMBER_EPOCHS = 9


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return commit_body(request, None, OffsetsCommitted(error=error.code), {})


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    version = ctx.api_version
    shard = ctx.services.groups.shard_of_any(request.group_id)
    commits, reply = sort_out(ctx, ApiKey.OFFSET_COMMIT, request)
    if not commits:
        return response_of(reply)
    shard.commit_offsets(
        CommitOffsets(
            group_id=request.group_id,
            partitions=commits,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
            knows_member_epochs=version >= FIRST_WITH_MEMBER_EPOCHS,
        ),
        reply,
    )
    return response_of(reply)
