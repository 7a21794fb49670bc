"""The table of APIs: key, versions and handler are bound in one place, and everyone else reads it.

ApiVersions, the dispatcher and the protocol support page are derived from `TABLE`; no version number is written twice.
`server.apis` lists what is served; the module of an API there has its handler, and may say how its errors look:

    def handle(ctx: RequestContext, request: Message) -> Response: ...
    def on_error(request: Message, version: int, error: BrokerError) -> Body: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.server.requests.forwarding import to_controller as forwarded
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.security.authorizer import Rights
    from broker_embedded.server.broker import Broker
    from broker_embedded.server.net.connection import Connection

Body = dict[str, Any]
Response = Body | bytes | asyncio.Future[Body] | Promise[Body] | None
"""A response body, also encoded already; or a promise of one, while the connection takes no further request; or nothing
(acks=0)."""

Handler = Callable[["RequestContext", Message], Response]
OnError = Callable[[Message, int, BrokerError], Body]


class RequestContext:
    """What a handler may know about its request besides the message."""

    __slots__ = ("api_version", "broker", "client_id", "connection", "correlation_id")

    def __init__(
        self, broker: Broker, connection: Connection, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.broker.loop

    @property
    def rights(self) -> Rights | None:
        """What the client may do; None if nobody asks, because there is no authorizer or the client is a broker."""
        authorization = self.broker.authorization
        return None if authorization is None else authorization.rights_of(self.connection)

    @property
    def client_host(self) -> str:
        """The client's address as groups list it."""
        return self.connection.client_host


class Api:
    """One served API. Its module is loaded when its handler is first asked for."""

    __slots__ = ("handler", "key", "listed_from", "max_version", "min_version", "on_error", "to_controller")

    handler: Handler
    on_error: OnError | None
    """Shapes the response for a BrokerError that the handler raises."""

    def __init__(
        self, key: ApiKey, *, versions: tuple[int, int], listed_from: int | None = None, to_controller: bool = False
    ) -> None:
        """`listed_from`: the lowest version that ApiVersions lists; lower than the first of `versions` only for Produce
        (KAFKA-18659). `to_controller`: the handler runs on the node whose controller is active, whichever was asked.
        """
        self.key = key
        self.min_version, self.max_version = versions
        self.listed_from = versions[0] if listed_from is None else listed_from
        self.to_controller = to_controller

    def __getattr__(self, name: str) -> Any:
        """Called for what the module has to say, until it is loaded; from then on the slots answer."""
        if name not in ("handler", "on_error"):
            raise AttributeError(name)
        module = import_module(f"broker_embedded.server.apis.{self.key.name.lower()}")
        self.on_error = getattr(module, "on_error", None)
        self.handler = forwarded(self.key, module.handle) if self.to_controller else module.handle
        return getattr(self, name)


TABLE: dict[int, Api] = {}


def serve(
    key: ApiKey, *, versions: tuple[int, int], listed_from: int | None = None, to_controller: bool = False
) -> None:
    """Put an API into the table. ValueError if it is there."""
    if key in TABLE:
        raise ValueError(f"{key.name} is served twice")
    TABLE[int(key)] = Api(key, versions=versions, listed_from=listed_from, to_controller=to_controller)
