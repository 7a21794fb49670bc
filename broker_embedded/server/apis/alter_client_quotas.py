"""AlterClientQuotas (key 49), versions 0-1: set or remove quotas of users, client ids and addresses (KIP-546).

Every entity has a result: its changes are applied together or not at all. `validate_only` checks and changes nothing.
Each broker enforces a quota separately, as in Kafka. An address is an IP address, not a host name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.client_quotas import QuotaAlteration
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.metadata.records import QuotaEntity, quota_entity
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    alterations = [
        QuotaAlteration(
            entity=_entity(entry), ops=[(op.key, None if op.remove else float(op.value)) for op in entry.ops]
        )
        for entry in request.entries
    ]
    altered = ctx.services.controller.alter_client_quotas(alterations, validate_only=request.validate_only)
    return map_result(altered, _answer)


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _answer({_entity(entry): error for entry in request.entries})


def _entity(entry: Message) -> QuotaEntity:
    """Return the entity. If a kind is named twice the last name counts, as in Kafka."""
    return quota_entity({each.entity_type: each.entity_name for each in entry.entity}.items())


def _answer(outcomes: dict[QuotaEntity, Outcome]) -> Body:
    return {
        "throttle_time_ms": 0,
        "entries": [
            {
                **error_fields(error),
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            }
            for entity, error in outcomes.items()
        ],
    }
