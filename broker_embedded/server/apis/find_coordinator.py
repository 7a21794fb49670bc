"""FindCoordinator (key 10), versions 0 to 6: which broker coordinates a group or a transactional id.

Several keys at once from version 4 on (KIP-699). The first request creates `__consumer_offsets`, `__transaction_state`
or `__share_group_state`, and its response waits for the topic, so that a client need not back off and retry. Version 6
finds the coordinator of a share partition as well; its key is `groupId:topicId:partition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.common.types import (
    GROUP_METADATA_TOPIC,
    NO_LEADER,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from broker_embedded.coordinator.share.coordinator import check_coordinator_key
from broker_embedded.metadata.image import BrokerImage
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.server.share.needs import check_enabled
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata, HasShares, HasTopics, HasTransactions

    class Needs(HasMetadata, HasGroups, HasTransactions, HasShares, HasTopics, Protocol): ...


FIRST_WITH_BATCHES = 4
GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_WITH_SHARES = 6
_TOPICS = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC, SHARE: SHARE_STATE_TOPIC}
NO_NODE = {"node_id": -1, "host": "", "port": -1}


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    if version < FIRST_WITH_BATCHES:
        return _failed(error)
    coordinators = [{"key": key, **_failed(error)} for key in request.coordinator_keys]
    return {"throttle_time_ms": 0, "coordinators": coordinators}


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    key_type = request.key_type
    topic = _TOPICS.get(key_type)
    if topic is None or (key_type == SHARE and ctx.api_version < FIRST_WITH_SHARES):
        raise _not_served(key_type)
    if key_type == SHARE:
        check_enabled(ctx.services.metadata.image)
    ready = ctx.services.topics.ensure_internal(topic)
    if ctx.api_version < FIRST_WITH_BATCHES:
        return map_result(ready, lambda _: _locate(ctx, key_type, request.key))
    return map_result(
        ready,
        lambda _: {
            "throttle_time_ms": 0,
            "coordinators": [{"key": key, **_located(ctx, key_type, key)} for key in request.coordinator_keys],
        },
    )


def _not_served(key_type: int) -> BrokerError:
    wanted = "0 (group), 1 (transaction) or, from version 6, 2 (share partition)"
    return BrokerError(ErrorCode.INVALID_REQUEST, f"key type {key_type}, wanted {wanted}")


def _locate(ctx: RequestContext[Needs], key_type: int, key: str) -> Body:
    """Return the coordinator of a group or a transactional id. Raises BrokerError."""
    number = _partition_of(ctx, key_type, key)
    partition = TopicPartition(_TOPICS[key_type], number)
    image = ctx.services.metadata.image
    state = image.partition(partition)
    leader = NO_LEADER if state is None else state.leader
    broker: BrokerImage | None = image.brokers.get(leader)
    if broker is None or broker.fenced:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{partition} has no leader at the moment")
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "node_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
    }


def _partition_of(ctx: RequestContext[Needs], key_type: int, key: str) -> int:
    if key_type == SHARE:
        check_coordinator_key(key)
        return ctx.services.share_states.partition_of(key)
    keeper = ctx.services.groups if key_type == GROUP else ctx.services.transactions
    return keeper.partition_of(key)


def _located(ctx: RequestContext[Needs], key_type: int, key: str) -> Body:
    try:
        body = _locate(ctx, key_type, key)
    except BrokerError as error:
        body = _failed(error)
    body.pop("throttle_time_ms", None)
    return body


def _failed(error: BrokerError) -> Body:
    return {**error_fields(error), **NO_NODE}
