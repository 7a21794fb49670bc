"""DescribeClientQuotas (key 48), versions 0-1: the quotas of users, client ids and addresses (KIP-546).

The filter names kinds of entities, each by name, as the default of its kind, or any. A broker answers from its own copy
of the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.quotas.filters import QuotaFilter
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata


def handle(ctx: RequestContext[HasMetadata], request: Message) -> Response:
    components = [(each.entity_type, each.match_type, each.match) for each in request.components]
    wanted = QuotaFilter(components, is_strict=request.strict)
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": values[key]} for key in sorted(values, key=_as_in_kafka)],
            }
            for entity, values in ctx.services.metadata.image.client_quotas.items()
            if wanted.matches(entity)
        ],
    }


_ORDER = ("consumer_byte_rate", "controller_mutation_rate", "request_percentage", "producer_byte_rate")


def _as_in_kafka(key: str) -> int:
    """Return entries in Kafka's order, for up to three values the order of its hash table: clients compare lists."""
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"throttle_time_ms": 0, "entries": None, **error_fields(error)}
