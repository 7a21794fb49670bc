"""Guards of requests about consumer groups and their offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.acls import AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal, require
from broker_embedded.server.authorization.guards import (
    adding,
    amended,
    only_described,
    require_on_cluster,
    sort_names,
    with_fields,
)
from broker_embedded.server.authorization.operations import of_group
from broker_embedded.server.authorization.topics import identity_of, refused_partitions, sort_topics
from broker_embedded.server.handling.group_bodies import undescribed_group
from broker_embedded.server.handling.replies import error_fields
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

_GROUP, _TOPIC = AclResource.GROUP, AclResource.TOPIC
FETCH_GROUPS_FROM = 8
FIND_SEVERAL_FROM = 4
_COORDINATED = {0: AclResource.GROUP, 1: AclResource.TRANSACTIONAL_ID}
_SHARE = 2


def find_coordinator(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """FindCoordinator: DESCRIBE on the group or the transactional id; for a share partition CLUSTER_ACTION."""
    if request.key_type == _SHARE:
        require_on_cluster(rights, AclOperation.CLUSTER_ACTION)
    resource = _COORDINATED.get(request.key_type)
    if resource is None:
        return handler(ctx, request)
    if ctx.api_version < FIND_SEVERAL_FROM:
        require(rights, AclOperation.DESCRIBE, resource, request.key)
        return handler(ctx, request)
    allowed, refused = sort_names(rights, AclOperation.DESCRIBE, resource, request.coordinator_keys)
    nowhere = {"node_id": -1, "host": "", "port": -1}
    denied = [{"key": key, **nowhere, **error_fields(error)} for key, error in refused]
    if not allowed and denied:
        return {"throttle_time_ms": 0, "coordinators": denied}
    answer = handler(ctx, with_fields(request, coordinator_keys=allowed))
    return adding(ctx, ApiKey.FIND_COORDINATOR, answer, "coordinators", denied)


# --- looking at groups


def describe_groups(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DescribeGroups: DESCRIBE on each group."""
    allowed, refused = sort_names(rights, AclOperation.DESCRIBE, _GROUP, request.groups)
    empty = {"group_state": "", "protocol_type": "", "protocol_data": "", "members": []}
    denied = [{"group_id": name, **empty, **error_fields(error)} for name, error in refused]

    def amend(body: Body) -> Body:
        for group in body["groups"]:
            of_group(rights, group)
        return {**body, "groups": [*body["groups"], *denied]}

    return amended(ctx, ApiKey.DESCRIBE_GROUPS, handler(ctx, with_fields(request, groups=allowed)), amend)


def _group_describe(
    api: ApiKey, rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler
) -> Response:
    """DESCRIBE on each group, and on every topic that its members have or shall have."""
    allowed, refused = sort_names(rights, AclOperation.DESCRIBE, _GROUP, request.group_ids)
    denied = [undescribed_group(name, error, state="") for name, error in refused]

    def shown(group: dict[str, Any]) -> dict[str, Any]:
        for name in _topics_of(group):
            if not rights.allows(AclOperation.DESCRIBE, _TOPIC, name):
                error = BrokerError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    "The group has described topic(s) that the client is not authorized to describe.",
                )
                return undescribed_group(group["group_id"], error, state="")
        of_group(rights, group)
        return group

    def amend(body: Body) -> Body:
        return {**body, "groups": [*map(shown, body["groups"]), *denied]}

    answer = handler(ctx, with_fields(request, group_ids=allowed))
    return amended(ctx, api, answer, amend)


consumer_group_describe = partial(_group_describe, ApiKey.CONSUMER_GROUP_DESCRIBE)
share_group_describe = partial(_group_describe, ApiKey.SHARE_GROUP_DESCRIBE)


def _topics_of(group: dict[str, Any]) -> set[str]:
    return {
        each["topic_name"]
        for member in group["members"]
        for assignment in (member["assignment"], member.get("target_assignment", {}))
        for each in assignment.get("topic_partitions", ())
    }


def describe_share_group_offsets(
    rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler
) -> Response:
    """DescribeShareGroupOffsets: DESCRIBE on each group and on each topic that is named."""
    for group in request.groups:
        require(rights, AclOperation.DESCRIBE, _GROUP, group.group_id)
        for topic in group.topics or ():
            require(rights, AclOperation.DESCRIBE, _TOPIC, topic.topic_name)
    return handler(ctx, request)


def list_groups(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """ListGroups: all groups with DESCRIBE on the cluster; otherwise those that may be described."""
    answer = handler(ctx, request)
    if rights.allows_on_cluster(AclOperation.DESCRIBE):
        return answer

    def amend(body: Body) -> Body:
        return {**body, "groups": only_described(rights, _GROUP, body["groups"], "group_id")}

    return amended(ctx, ApiKey.LIST_GROUPS, answer, amend)


def delete_groups(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DeleteGroups: DELETE on each group."""
    allowed, refused = sort_names(rights, AclOperation.DELETE, _GROUP, request.groups_names)
    answer = handler(ctx, with_fields(request, groups_names=allowed))
    denied = [{"group_id": name, "error_code": int(error.code)} for name, error in refused]
    return adding(ctx, ApiKey.DELETE_GROUPS, answer, "results", denied)


# --- offsets


def offset_commit(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """OffsetCommit: READ on the group and on each topic."""
    require(rights, AclOperation.READ, _GROUP, request.group_id)
    return committing(ApiKey.OFFSET_COMMIT, rights, ctx, request, handler)


def committing(
    api: ApiKey, rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler
) -> Response:
    """READ on each topic of a request that commits or deletes offsets."""
    allowed, refused = sort_topics(rights, AclOperation.READ, request.topics, ctx.services.metadata.image.name_in)
    if not refused:
        return handler(ctx, request)
    denied = [refused_partitions(topic, error) for topic, error in refused]
    return adding(ctx, api, handler(ctx, with_fields(request, topics=allowed)), "topics", denied)


def offset_delete(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """OffsetDelete: DELETE on the group, READ on each topic."""
    require(rights, AclOperation.DELETE, _GROUP, request.group_id)
    return committing(ApiKey.OFFSET_DELETE, rights, ctx, request, handler)


def offset_fetch(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """OffsetFetch: DESCRIBE on each group and each topic. For all topics, others are left out."""
    if ctx.api_version < FETCH_GROUPS_FROM:
        return _fetch_of_one(rights, ctx, request, handler)
    allowed, denied = [], []
    topics_denied: dict[str, list[Body]] = {}
    for group in request.groups:
        name = group.group_id
        if not rights.allows(AclOperation.DESCRIBE, _GROUP, name):
            error = refusal(rights, AclOperation.DESCRIBE, _GROUP, name)
            denied.append({"group_id": name, "topics": [], "error_code": int(error.code)})
            continue
        if group.topics is not None:
            topics, topics_denied[name] = _sort_fetched(rights, ctx, group.topics)
            group = with_fields(group, topics=topics)
        allowed.append(group)

    def shown(group: dict[str, Any]) -> dict[str, Any]:
        if group["error_code"]:
            return group
        refused = topics_denied.get(group["group_id"])
        topics = group["topics"]
        topics = only_described(rights, _TOPIC, topics, "name") if refused is None else [*topics, *refused]
        return {**group, "topics": topics}

    answer = handler(ctx, with_fields(request, groups=allowed))
    return amended(
        ctx, ApiKey.OFFSET_FETCH, answer, lambda body: {**body, "groups": [*map(shown, body["groups"]), *denied]}
    )


def _fetch_of_one(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    group_id = request.group_id
    if not rights.allows(AclOperation.DESCRIBE, _GROUP, group_id):
        error = refusal(rights, AclOperation.DESCRIBE, _GROUP, group_id)
        # Version 1 has no place at the top: every partition carries the error.
        topics = [_unfetched(topic, error) for topic in request.topics or ()]
        return {"throttle_time_ms": 0, "topics": topics, "error_code": int(error.code)}
    if request.topics is None:
        return amended(
            ctx,
            ApiKey.OFFSET_FETCH,
            handler(ctx, request),
            lambda body: {**body, "topics": only_described(rights, _TOPIC, body["topics"], "name")},
        )
    allowed, refused = _sort_fetched(rights, ctx, request.topics)
    return adding(ctx, ApiKey.OFFSET_FETCH, handler(ctx, with_fields(request, topics=allowed)), "topics", refused)


def _sort_fetched(
    rights: Rights, ctx: RequestContext[Services], topics: list[Message]
) -> tuple[list[Message], list[Body]]:
    allowed, refused = sort_topics(rights, AclOperation.DESCRIBE, topics, ctx.services.metadata.image.name_in)
    return allowed, [_unfetched(topic, error) for topic, error in refused]


def _unfetched(topic: Message, error: BrokerError) -> Body:
    return {
        **identity_of(topic),
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1,
                "committed_leader_epoch": -1,
                "metadata": "",
                "error_code": int(error.code),
            }
            for index in topic.partition_indexes
        ],
    }
