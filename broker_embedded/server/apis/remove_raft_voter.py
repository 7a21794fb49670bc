"""RemoveRaftVoter (key 81), version 0: refused, as by a Kafka cluster formatted with static voters (KIP-853).

Not done: changes of the metadata quorum's voters, which need `kraft.version` 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.handling.voters import refuse_change
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    refuse_change(ctx, request, "removing")
