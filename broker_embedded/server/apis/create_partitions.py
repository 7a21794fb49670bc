"""CreatePartitions (key 37), versions 0-3: `count` is the wanted total. Partitions are never removed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.requests import NewPartitions
from broker_embedded.server.handling.mutation_quota import mutation_quota
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController, HasQuotas

    class Needs(HasController, HasQuotas, Protocol): ...


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"results": [_result(topic.name, error) for topic in request.topics]}


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    counts = Counter(topic.name for topic in request.topics)
    wanted = [_new_partitions(topic) for topic in request.topics if counts[topic.name] == 1]
    twice = BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    repeated = [_result(name, twice) for name, count in counts.items() if count > 1]
    quota = mutation_quota(ctx, strict_from=3)

    def answer(outcomes: list[BrokerError | None]) -> Body:
        results = [_result(topic.name, outcome) for topic, outcome in zip(wanted, outcomes, strict=True)]
        return {"throttle_time_ms": quota.throttle_ms(), "results": results + repeated}

    grown = ctx.services.controller.create_partitions(wanted, validate_only=request.validate_only, charge=quota.charge)
    return map_result(grown, answer)


def _new_partitions(topic: Message) -> NewPartitions:
    assignments = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    return NewPartitions(name=topic.name, count=topic.count, assignments=assignments)


def _result(name: str, error: BrokerError | None) -> Body:
    return {"name": name, **error_fields(error)}
