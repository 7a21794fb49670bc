"""Parts of the requests of share groups: their services, their checks, and the response that two of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller.features import has_share_groups
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.replication.partition import Partition
from broker_embedded.server.handling.endpoints import current_leader, leader_endpoints
from broker_embedded.server.requests.context import Body, RequestContext
from broker_embedded.share.session import LONGEST_MEMBER_ID, SessionKey, TopicIdPartition
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import (
        HasAuthorization,
        HasClock,
        HasConfig,
        HasFaults,
        HasMetadata,
        HasQuotas,
        HasReplicas,
        HasShares,
    )

    class ShareNeeds(
        HasReplicas, HasMetadata, HasConfig, HasClock, HasQuotas, HasAuthorization, HasFaults, HasShares, Protocol
    ): ...


def check_enabled(image: ClusterImage) -> None:
    """Raise UNSUPPORTED_VERSION while the cluster has not finalized `share.version` 1."""
    if not has_share_groups(image):
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "share groups are not enabled: share.version is 0")


def session_key(ctx: RequestContext[ShareNeeds], request: Message) -> SessionKey:
    """Return whose request it is. Raises INVALID_REQUEST without a group or with an unusable member id."""
    check_enabled(ctx.services.metadata.image)
    if not request.group_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    member_id = request.member_id or ""
    if not 0 < len(member_id) <= LONGEST_MEMBER_ID:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"member id: found {len(member_id)} characters, wanted 1 to {LONGEST_MEMBER_ID}"
        )
    return SessionKey(request.group_id, member_id)


def led_partition(ctx: RequestContext[ShareNeeds], topic_id: bytes, number: int) -> Partition:
    """Return a partition that the client may read and that this broker leads. Raises BrokerError."""
    name = ctx.services.metadata.image.topic_names.get(topic_id)
    if name is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id.hex()}")
    if ctx.rights is not None:
        from broker_embedded.metadata.acls import AclOperation, AclResource  # where there is an authorizer
        from broker_embedded.security.refusal import require

        require(ctx.rights, AclOperation.READ, AclResource.TOPIC, name)
    return ctx.services.replicas.leader_partition(TopicPartition(name, number))


def leader_fields(ctx: RequestContext[ShareNeeds], topic_id: bytes, number: int, error: ErrorCode) -> dict[str, Any]:
    """Return the field that names the leader, for a client that asked another broker; empty otherwise."""
    if error not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return {}
    image = ctx.services.metadata.image
    return current_leader(image, TopicPartition(image.topic_names.get(topic_id, ""), number))


def share_response(ctx: RequestContext[ShareNeeds], key: SessionKey, partitions: dict[TopicIdPartition, Body]) -> Body:
    """Return the response to ShareFetch or ShareAcknowledge, given the fields of each partition."""
    topics: dict[bytes, list[Body]] = {}
    for (topic_id, number), fields in partitions.items():
        topics.setdefault(topic_id, []).append({"partition_index": number, **fields})
    settings, _ = ctx.services.shares.settings_of(key.group_id)
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "acquisition_lock_timeout_ms": settings.share_record_lock_duration_ms,
        "responses": [{"topic_id": topic_id, "partitions": each} for topic_id, each in topics.items()],
        "node_endpoints": leader_endpoints(ctx.services.metadata.image, partitions.values()),
    }
