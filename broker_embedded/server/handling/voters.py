"""Changes of the metadata quorum's voters: none can be made, because the quorum's `kraft.version` is 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.requests.context import RequestContext
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def refuse_change(ctx: RequestContext[HasController], request: Message, doing: str) -> NoReturn:
    """Raise Kafka's error."""
    cluster_id = ctx.services.controller.image.cluster_id
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        raise BrokerError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"found cluster id {request.cluster_id}, wanted {cluster_id}"
        )
    raise BrokerError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {doing} voter because the kraft.version feature is 0",
    )
