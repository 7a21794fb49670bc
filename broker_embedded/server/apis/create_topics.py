"""CreateTopics (key 19), versions 2-7.

Each topic has its own result. `validate_only` checks everything and creates nothing. A name that occurs twice in a
request is refused both times, as in Kafka. The answer to more than 200 topics names only the settings that were given,
not also the defaults: 40 for each topic would hold up the loop for seconds. Not done: topic policies.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.requests import NewTopic, TopicResult
from broker_embedded.server.handling import config_view
from broker_embedded.server.handling.mutation_quota import mutation_quota
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import (
        HasController,
        HasLogs,
        HasMetadata,
        HasNodeId,
        HasQuotas,
        HasStaticConfig,
    )

    class Needs(HasNodeId, HasMetadata, HasLogs, HasController, HasQuotas, HasStaticConfig, Protocol): ...


WITH_DEFAULTS = 200
"""Topics whose default settings are in the answer too."""


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"topics": [_refused(topic.name, error) for topic in request.topics]}


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    counts = Counter(topic.name for topic in request.topics)
    refused = {topic.name: problem for topic in request.topics if (problem := _assigned_twice(topic)) is not None}
    wanted = [_new_topic(topic) for topic in request.topics if counts[topic.name] == 1 and topic.name not in refused]
    twice = BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    repeated = [
        _refused(name, twice if count > 1 else refused[name])
        for name, count in counts.items()
        if count > 1 or name in refused
    ]
    quota = mutation_quota(ctx, strict_from=6)

    def answer(results: list[TopicResult]) -> Body:
        with_defaults = len(results) <= WITH_DEFAULTS
        topics = [*(_result(ctx, each, with_defaults=with_defaults) for each in results), *repeated]
        return {"throttle_time_ms": quota.throttle_ms(), "topics": topics}

    created = ctx.services.controller.create_topics(wanted, validate_only=request.validate_only, charge=quota.charge)
    return map_result(created, answer)


def _new_topic(topic: Message) -> NewTopic:
    """Return the topic to create. `handle` has refused a partition that is assigned twice."""
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={each.partition_index: tuple(each.broker_ids) for each in topic.assignments},
        configs={each.name: each.value for each in topic.configs},
    )


def _assigned_twice(topic: Message) -> BrokerError | None:
    numbers = Counter(each.partition_index for each in topic.assignments)
    for number, count in numbers.items():
        if count > 1:
            return BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {number}",
            )
    return None


def _result(ctx: RequestContext[Needs], result: TopicResult, *, with_defaults: bool) -> Body:
    if result.error is not None:
        return _refused(result.name, result.error)
    body: Body = {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": result.partitions,
        "replication_factor": result.replication_factor,
    }
    if ctx.api_version >= 5:
        views = [
            view
            for view in (
                config_view.topic_settings(ctx.services, result.configs, as_given=True)
                if with_defaults or result.configs
                else ()
            )
            if with_defaults or view.name in result.configs
        ]
        body["configs"] = [
            {
                "name": view.name,
                "value": view.value,
                "read_only": False,
                "config_source": int(view.source),
                "is_sensitive": False,
            }
            for view in views
        ]
    return body


def _refused(name: str, error: BrokerError) -> Body:
    return {"name": name, "configs": None, **error_fields(error)}
