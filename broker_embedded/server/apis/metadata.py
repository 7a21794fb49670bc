"""Metadata (key 3), versions 0-13.

Brokers, topics, partitions and leaders from this broker's image. A missing topic is created if the client and
auto.create.topics.enable allow it, and the response already contains it, so that clients need not ask again: the
response waits at most one second for this broker's metadata to have the topic. It also waits, for a quarter of a second
at most, while a leader that has just died is being replaced (`unreachable_leaders`). As controller it names itself: it
passes requests on, and a client that was sent to a node which has died would not ask again for minutes. Not done:
version 13's REBOOTSTRAP_REQUIRED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise, map_result, run_into
from broker_embedded.common.types import INTERNAL_TOPICS, NO_LEADER
from broker_embedded.controller import topic_names
from broker_embedded.controller.requests import TopicResult
from broker_embedded.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker_embedded.security.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ZERO_UUID, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import (
        HasConfig,
        HasMetadata,
        HasNodeId,
        HasTopics,
        HasUnreachableLeaders,
    )

    class Needs(HasNodeId, HasConfig, HasMetadata, HasTopics, HasUnreachableLeaders, Protocol): ...


_NO_ERROR: Final = int(ErrorCode.NONE)
_NOT_LED: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    topics = request.topics or []
    return {
        "error_code": int(error.code),
        "topics": [
            {"error_code": int(error.code), "name": each.name or "", "topic_id": each.topic_id} for each in topics
        ],
    }


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    wait = ctx.services.unreachable_leaders.wait(lambda: _asked_for(ctx, request))
    if wait is None:
        return _handle(ctx, request)
    answer: Promise[Body] = Promise()
    wait.add_done_callback(lambda _: None if answer.done() else run_into(answer, lambda: _handle(ctx, request)))
    return answer


def _asks_for_all(ctx: RequestContext[Needs], request: Message) -> bool:
    return request.topics is None or (ctx.api_version == 0 and not request.topics)


def _asked_for(ctx: RequestContext[Needs], request: Message) -> Iterable[TopicImage]:
    """Return the requested topics that exist."""
    image = ctx.services.metadata.image
    if _asks_for_all(ctx, request):
        return image.topics.values()
    found = (
        image.topic(each.name or "") if each.topic_id == ZERO_UUID else image.topic_by_id(each.topic_id)
        for each in request.topics
    )
    return [topic for topic in found if topic is not None]


def _handle(ctx: RequestContext[Needs], request: Message) -> Response:
    image = ctx.services.metadata.image
    if ctx.api_version < 12 and any(each.name is None for each in request.topics or ()):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "topics are asked for by id from version 12 on")
    if _asks_for_all(ctx, request):
        described = _Described(image, request)
        return _answer(ctx, request, [described.topic(topic) for topic in image.topics.values()])
    missing = [
        each.name
        for each in request.topics
        if each.topic_id == ZERO_UUID and each.name is not None and each.name not in image.topics
    ]
    may_create = request.allow_auto_topic_creation and ctx.services.config.auto_create_topics_enable
    if missing and may_create:
        return map_result(
            ctx.services.topics.create(missing), lambda results: _named(ctx, request, _errors_of(results))
        )
    return _named(ctx, request, {})


def _errors_of(results: Iterable[TopicResult]) -> dict[str, BrokerError]:
    return {
        result.name: result.error
        for result in results
        # Another client was faster: the topic is there, which is all that was asked.
        if result.error is not None and result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _named(ctx: RequestContext[Needs], request: Message, errors: dict[str, BrokerError]) -> Body:
    image = ctx.services.metadata.image
    described = _Described(image, request)
    topics: list[Body] = []
    # Once each, as in Kafka: a name of two bytes, sent often, would ask for megabytes of the same answer.
    for each in {(each.name, each.topic_id): each for each in request.topics}.values():
        by_id = each.topic_id != ZERO_UUID
        topic = image.topic_by_id(each.topic_id) if by_id else image.topic(each.name or "")
        if topic is not None:
            topics.append(described.topic(topic))
            continue
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else _why_missing(each.name or "", errors)
        topics.append({"error_code": int(code), "name": each.name, "topic_id": each.topic_id})
    return _answer(ctx, request, topics)


def _why_missing(name: str, errors: dict[str, BrokerError]) -> ErrorCode:
    if name in errors:
        return errors[name].code
    if topic_names.problem_with(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(ctx: RequestContext[Needs], request: Message, topics: list[Body]) -> Body:
    image = ctx.services.metadata.image
    asks_operations = ctx.api_version >= 8 and request.include_cluster_authorized_operations
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "brokers": [
            {"node_id": broker.broker_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
            for broker in image.live_brokers()
        ],
        "cluster_id": image.cluster_id,
        # Not where the controller is, which may be about to move: any broker passes on what is meant for it (KIP-590).
        "controller_id": ctx.services.node_id,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asks_operations else NOT_ASKED,
    }


class _Described:
    """Topics of one image, as an answer has them. Ten thousand partitions stand on a few sets of brokers: who of a set
    is offline is found out once.
    """

    def __init__(self, image: ClusterImage, request: Message) -> None:
        self._image = image
        self._operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        self._offline: dict[Any, list[int]] = {}

    def topic(self, topic: TopicImage) -> Body:
        return {
            "error_code": _NO_ERROR,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [self._partition(state) for state in topic.partitions.values()],
            "topic_authorized_operations": self._operations,
        }

    def _partition(self, state: PartitionImage) -> dict[str, Any]:
        placed = (state.replicas, state.directories)
        offline = self._offline.get(placed)
        if offline is None:
            offline = self._offline[placed] = self._image.offline_replicas(state)
        return {
            "error_code": _NOT_LED if state.leader == NO_LEADER else _NO_ERROR,
            "partition_index": state.partition,
            "leader_id": state.leader,
            "leader_epoch": state.leader_epoch,
            "replica_nodes": state.replicas,
            "isr_nodes": state.isr,
            "offline_replicas": offline,
        }
