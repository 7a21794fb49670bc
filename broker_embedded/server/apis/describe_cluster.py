"""DescribeCluster (key 60), versions 0-2: cluster id, controller and brokers; from 2 the fenced ones on request.

Not done: listing controllers (endpoint type 2) is refused, as the controller has no listener of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.security.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController, HasMetadata

    class Needs(HasMetadata, HasController, Protocol): ...


BROKERS = 1


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if request.endpoint_type != BROKERS:
        raise BrokerError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type}: only brokers (1) are listed"
        )
    image = ctx.services.metadata.image
    shows_fenced = ctx.api_version >= 2 and request.include_fenced_brokers
    return {
        "cluster_id": image.cluster_id,
        "controller_id": ctx.services.controller.leader_id,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "is_fenced": broker.fenced,
            }
            for broker in image.brokers.values()
            if shows_fenced or not broker.fenced
        ],
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    }
