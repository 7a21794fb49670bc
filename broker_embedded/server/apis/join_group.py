"""JoinGroup (key 11), versions 0 to 9: enter a classic group, or take part in its rebalance.

Behaves as Kafka's: a dynamic member of version 4 and later gets its id first (KIP-394), static members keep their id
(KIP-345), and the response is sent when all members have joined. `group.initial.rebalance.delay.ms` is 0 by default
here. Not done: members of both protocols in one group (KIP-848's online migration); a group changes its protocol while
empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.classic import Join, JoinAnswer
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups

FIRST_WITH_REQUIRED_MEMBER_ID = 4
FIRST_WITH_NULLABLE_PROTOCOL_NAME = 7
FIRST_WITH_SKIPPED_ASSIGNMENT = 9


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _body(JoinAnswer(error=error.code, member_id=request.member_id), version)


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    coordinator = ctx.services.groups
    version = ctx.api_version
    shard = coordinator.shard_of(request.group_id)
    config = coordinator.config().broker
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        raise BrokerError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {request.session_timeout_ms} ms, wanted {config.group_min_session_timeout_ms}"
            f" to {config.group_max_session_timeout_ms}",
        )
    client_id = ctx.client_id or ""
    reply: Reply[JoinAnswer] = Reply(lambda answer: _body(answer, version))
    event = Join(
        ticket=reply,
        member_id=request.member_id,
        new_member_id=coordinator.new_member_id(request.group_instance_id or client_id),
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{ctx.client_host}",  # as Java prints an address, and so Kafka
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 knows one timeout for both.
        rebalance_timeout_ms=request.rebalance_timeout_ms if version > 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        requires_known_member_id=version >= FIRST_WITH_REQUIRED_MEMBER_ID,
        can_skip_assignment=version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
        reason=request.reason or "",
    )
    shard.join(request.group_id, event, reply)
    return response_of(reply)


def _body(answer: JoinAnswer, version: int) -> Body:
    no_protocol = None if version >= FIRST_WITH_NULLABLE_PROTOCOL_NAME else ""
    return {
        "throttle_time_ms": 0,
        "error_code": int(answer.error),
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": no_protocol if answer.protocol_name is None else answer.protocol_name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }
