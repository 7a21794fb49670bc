"""Arguments and results of a handler.

def handle(ctx: RequestContext[HasMetadata], request: Message) -> Response: ...
def on_error(request: Message, version: int, error: BrokerError) -> Body: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.security.authorizer import Rights
    from broker_embedded.server.net.connection import ClientConnection
    from broker_embedded.server.requests.services import HasAuthorization, Services

Body = dict[str, Any]
Response = Body | bytes | asyncio.Future[Body] | Promise[Body] | None
"""A response body, also encoded already; or a promise of one, while the connection takes no further request; or nothing
(acks=0)."""

S = TypeVar("S", covariant=True)


class RequestContext(Generic[S]):
    """A handler's view of its request besides the message. `services`: the parts of the broker that it may use."""

    __slots__ = ("api_version", "client_id", "connection", "correlation_id", "services")

    def __init__(
        self, services: S, connection: ClientConnection, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.services = services
        self.connection = connection
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def rights(self: RequestContext[HasAuthorization]) -> Rights | None:
        """Return the client's rights; None without an authorizer or for a broker."""
        authorization = self.services.authorization
        return None if authorization is None else authorization.rights_of(self.connection)

    @property
    def client_host(self) -> str:
        """The client's address as groups list it."""
        return self.connection.client_host


Handler = Callable[["RequestContext[Services]", Message], Response]
OnError = Callable[[Message, int, BrokerError], Body]
"""Shapes the response for a BrokerError that the handler raises."""
