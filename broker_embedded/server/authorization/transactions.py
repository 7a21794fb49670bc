"""Guards of producer ids and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.types import INTERNAL_TOPICS, TopicPartition
from broker_embedded.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal, require
from broker_embedded.server.authorization.groups import committing
from broker_embedded.server.authorization.guards import (
    amended,
    only_described,
    require_on_cluster,
    sort_names,
    with_fields,
)
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

_ID, _TOPIC = AclResource.TRANSACTIONAL_ID, AclResource.TOPIC
ADD_PARTITIONS_OF_BROKERS_FROM = 4


def init_producer_id(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """InitProducerId: WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic
    (KIP-679).
    """
    if request.transactional_id is not None:
        require(rights, AclOperation.WRITE, _ID, request.transactional_id)
    elif not rights.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE) and not rights.allows_some(
        AclOperation.WRITE, _TOPIC
    ):
        raise refusal(rights, AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, CLUSTER_NAME)
    return handler(ctx, request)


def add_partitions_to_txn(
    rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler
) -> Response:
    """AddPartitionsToTxn: WRITE on the transactional id and on each topic; from version 4 on brokers ask, who need
    CLUSTER_ACTION. One topic that is refused refuses all.
    """
    if ctx.api_version >= ADD_PARTITIONS_OF_BROKERS_FROM:
        require_on_cluster(rights, AclOperation.CLUSTER_ACTION)
        return handler(ctx, request)
    require(rights, AclOperation.WRITE, _ID, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    denied = {topic.name for topic in topics if not _may_write(rights, topic.name)}
    if not denied:
        return handler(ctx, request)
    for name in denied:
        refusal(rights, AclOperation.WRITE, _TOPIC, name)

    def error_of(topic: str, partition: int) -> ErrorCode:
        if topic in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_there = ctx.services.metadata.image.partition(TopicPartition(topic, partition)) is not None
        return ErrorCode.OPERATION_NOT_ATTEMPTED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return {
        "throttle_time_ms": 0,
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": each, "partition_error_code": int(error_of(topic.name, each))}
                    for each in topic.partitions
                ],
            }
            for topic in topics
        ],
    }


def _may_write(rights: Rights, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and rights.allows(AclOperation.WRITE, _TOPIC, topic)


def txn_offset_commit(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """TxnOffsetCommit: WRITE on the transactional id, READ on the group and on each topic."""
    require(rights, AclOperation.WRITE, _ID, request.transactional_id)
    require(rights, AclOperation.READ, AclResource.GROUP, request.group_id)
    return committing(ApiKey.TXN_OFFSET_COMMIT, rights, ctx, request, handler)


def describe_transactions(
    rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler
) -> Response:
    """DescribeTransactions: DESCRIBE on each transactional id; topics without DESCRIBE are left out."""
    allowed, refused = sort_names(rights, AclOperation.DESCRIBE, _ID, request.transactional_ids)
    denied = [
        {"error_code": int(error.code), "transactional_id": each, "transaction_state": "", "topics": []}
        for each, error in refused
    ]

    def amend(body: Body) -> Body:
        for state in body["transaction_states"]:
            state["topics"] = only_described(rights, _TOPIC, state["topics"], "topic")
        return {**body, "transaction_states": [*body["transaction_states"], *denied]}

    answer = handler(ctx, with_fields(request, transactional_ids=allowed))
    return amended(ctx, ApiKey.DESCRIBE_TRANSACTIONS, answer, amend)


def list_transactions(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """ListTransactions: transactions with DESCRIBE."""

    def amend(body: Body) -> Body:
        states = body["transaction_states"]
        return {**body, "transaction_states": only_described(rights, _ID, states, "transactional_id")}

    return amended(ctx, ApiKey.LIST_TRANSACTIONS, handler(ctx, request), amend)
