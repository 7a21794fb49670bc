"""AlterUserScramCredentials (key 51), version 0: set or remove users' SCRAM credentials (KIP-554).

Each user has a result, and valid changes are applied. From then on the user authenticates with the new password; open
connections stay open. The passwords of PLAIN are those that the broker was started with, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.controller.scram_credentials import ScramDeletion, ScramUpsertion
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    deletions = [ScramDeletion(name=each.name, mechanism=each.mechanism) for each in request.deletions]
    upsertions = [
        ScramUpsertion(
            name=each.name,
            mechanism=each.mechanism,
            iterations=each.iterations,
            salt=bytes(each.salt),
            salted_password=bytes(each.salted_password),
        )
        for each in request.upsertions
    ]
    return map_result(ctx.services.controller.alter_scram_credentials(deletions, upsertions), _answer)


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _answer({each.name: error for each in (*request.deletions, *request.upsertions)})


def _answer(outcomes: dict[str, Outcome]) -> Body:
    return {
        "throttle_time_ms": 0,
        "results": [{"user": name, **error_fields(error)} for name, error in outcomes.items()],
    }
