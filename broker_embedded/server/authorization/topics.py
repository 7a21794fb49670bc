"""Guards of requests about topics and their records and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.acls import AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal
from broker_embedded.server.authorization.guards import (
    Guard,
    adding,
    amended,
    require_on_cluster,
    with_fields,
)
from broker_embedded.server.fetch.request import TOPIC_IDS_FROM as FETCH_IDS_FROM
from broker_embedded.server.fetch.request import is_for_metadata_log, replica_of
from broker_embedded.server.handling.replies import error_fields
from ottla_wire.protocol import ZERO_UUID, ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

_TOPIC = AclResource.TOPIC
_ATTRIBUTES_AT = 22
_TRANSACTIONAL = 0x10
DELETE_TOPICS_IDS_FROM = 6

Refused = Callable[[Any, BrokerError], Any]
"""The result of a topic of the request, refused."""


def sort_topics(
    rights: Rights, operation: AclOperation, topics: Iterable[Any], name_of: Callable[[Any], str | None]
) -> tuple[list[Any], list[tuple[Any, BrokerError]]]:
    """Split the topics of a request into allowed and refused ones. One without a name is left to the handler."""
    allowed: list[Any] = []
    refused: list[tuple[Any, BrokerError]] = []
    for topic in topics:
        name = name_of(topic)
        if name is None or rights.allows(operation, _TOPIC, name):
            allowed.append(topic)
        else:
            refused.append((topic, refusal(rights, operation, _TOPIC, name)))
    return allowed, refused


def identity_of(topic: Message) -> Body:
    """Return the field by which a request has a topic."""
    field = "name" if "name" in topic.FIELDS else "topic_id"
    return {field: getattr(topic, field)}


def refused_partitions(topic: Message, error: BrokerError, **fields: Any) -> Body:
    """Return the result of a refused topic; `fields` are what its partitions say besides the error."""
    code = int(error.code)
    partitions = [{"partition_index": each.partition_index, "error_code": code, **fields} for each in topic.partitions]
    return {**identity_of(topic), "partitions": partitions}


def _each_topic(
    api: ApiKey,
    operation: AclOperation,
    refused_body: Refused,
    *,
    unless_on_cluster: AclOperation | None = None,
    answer_field: str = "topics",
    name: str = "name",
) -> Guard:
    """Return a guard of an API whose request and response list topics."""

    def guard(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
        if unless_on_cluster is not None and rights.allows_on_cluster(unless_on_cluster):
            return handler(ctx, request)
        allowed, refused = sort_topics(rights, operation, request.topics, lambda topic: getattr(topic, name))
        if not refused:
            return handler(ctx, request)
        answer = handler(ctx, with_fields(request, topics=allowed))
        return adding(ctx, api, answer, answer_field, (refused_body(topic, error) for topic, error in refused))

    return guard


# --- records


def produce(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """Produce: WRITE to each topic, and to the transactional id if any batch is transactional."""
    if _is_transactional(request):
        identity = request.transactional_id
        if identity is None or not rights.allows(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, identity):
            raise refusal(rights, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, identity or "")
    name_of = ctx.services.metadata.image.name_in
    allowed, refused = sort_topics(rights, AclOperation.WRITE, request.topic_data, name_of)
    if not refused:
        return handler(ctx, request)
    answer = handler(ctx, with_fields(request, topic_data=allowed))
    if request.acks == 0:
        ctx.connection.close()
    return adding(ctx, ApiKey.PRODUCE, answer, "responses", (_unwritten(topic, error) for topic, error in refused))


def _is_transactional(request: Message) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
                return True
    return False


def _unwritten(topic: Message, error: BrokerError) -> Body:
    partitions = [
        {
            "index": each.index,
            "error_code": int(error.code),
            "base_offset": -1,
            "log_append_time_ms": -1,
            "log_start_offset": -1,
            "record_errors": (),
            "error_message": error.message,
        }
        for each in topic.partition_data
    ]
    return {"name": topic.name, "topic_id": topic.topic_id, "partition_responses": partitions}


def fetch(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """Fetch: followers and the quorum need CLUSTER_ACTION. A consumer's partitions are authorized as they are read
    (`fetch.operation`), because its session may remember them."""
    if is_for_metadata_log(request, ctx.api_version):
        require_on_cluster(rights, AclOperation.CLUSTER_ACTION)
        return handler(ctx, request)
    is_follower = replica_of(request, ctx.api_version)[0] >= 0
    if not is_follower or rights.allows_on_cluster(AclOperation.CLUSTER_ACTION):
        return handler(ctx, request)
    key = "topic_id" if ctx.api_version >= FETCH_IDS_FROM else "topic"
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "session_id": 0,
        "responses": [
            {key: getattr(topic, key), "partitions": [_unread(each.partition) for each in topic.partitions]}
            for topic in request.topics
        ],
    }


def _unread(partition: int) -> Body:
    return {
        "partition_index": partition,
        "error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "records": b"",
    }


def _no_epochs(topic: Message, error: BrokerError) -> Body:
    partitions = [{"partition": each.partition, "error_code": int(error.code)} for each in topic.partitions]
    return {"topic": topic.topic, "partitions": partitions}


def _no_producers(topic: Message, error: BrokerError) -> Body:
    partitions = [{"partition_index": each, **error_fields(error)} for each in topic.partition_indexes]
    return {"name": topic.name, "partitions": partitions}


list_offsets = _each_topic(
    ApiKey.LIST_OFFSETS, AclOperation.DESCRIBE, partial(refused_partitions, timestamp=-1, offset=-1)
)
offset_for_leader_epoch = _each_topic(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    AclOperation.DESCRIBE,
    _no_epochs,
    unless_on_cluster=AclOperation.CLUSTER_ACTION,
    name="topic",
)
delete_records = _each_topic(ApiKey.DELETE_RECORDS, AclOperation.DELETE, partial(refused_partitions, low_watermark=-1))
describe_producers = _each_topic(ApiKey.DESCRIBE_PRODUCERS, AclOperation.READ, _no_producers)


# --- topics themselves


def create_topics(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """CreateTopics: CREATE on the cluster or on each topic. The created settings are returned to clients that may
    describe them.
    """
    allowed: list[Any] = list(request.topics)
    refused: list[tuple[Any, BrokerError]] = []
    if not rights.allows_on_cluster(AclOperation.CREATE):
        allowed, refused = sort_topics(rights, AclOperation.CREATE, request.topics, lambda topic: topic.name)

    def amend(body: Body) -> Body:
        for topic in body["topics"]:
            is_secret = not rights.allows(AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic["name"])
            if topic["error_code"] == 0 and is_secret:
                code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                topic.update(topic_config_error_code=code, num_partitions=-1, replication_factor=-1, configs=[])
        denied = [{"name": topic.name, "configs": None, **error_fields(error)} for topic, error in refused]
        return {**body, "topics": [*body["topics"], *denied]}

    return amended(ctx, ApiKey.CREATE_TOPICS, handler(ctx, with_fields(request, topics=allowed)), amend)


def delete_topics(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DeleteTopics: DELETE on the cluster or on each topic. The name of a topic given by id is returned to clients that
    may describe it.
    """
    if rights.allows_on_cluster(AclOperation.DELETE):
        return handler(ctx, request)
    names = ctx.services.metadata.image.topic_names
    has_ids = ctx.api_version >= DELETE_TOPICS_IDS_FROM
    field = "topics" if has_ids else "topic_names"

    def name_of(topic: Any) -> str | None:
        if not has_ids:
            return str(topic)
        return names.get(topic.topic_id) if topic.name is None else topic.name

    def refused_body(topic: Any, error: BrokerError) -> Body:
        if not has_ids:
            return {"name": topic, "topic_id": ZERO_UUID, **error_fields(error)}
        may_know = topic.name is not None or rights.allows(AclOperation.DESCRIBE, _TOPIC, name_of(topic) or "")
        error = error if may_know else BrokerError(error.code)  # whose text has the name
        name = name_of(topic) if may_know else None
        return {"name": name, "topic_id": topic.topic_id, **error_fields(error)}

    allowed, refused = sort_topics(rights, AclOperation.DELETE, getattr(request, field), name_of)
    answer = handler(ctx, with_fields(request, **{field: allowed}))
    return adding(ctx, ApiKey.DELETE_TOPICS, answer, "responses", (refused_body(*each) for each in refused))


create_partitions = _each_topic(
    ApiKey.CREATE_PARTITIONS,
    AclOperation.ALTER,
    lambda topic, error: {"name": topic.name, **error_fields(error)},
    answer_field="results",
)
