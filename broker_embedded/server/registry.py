"""The table of APIs: key, versions and handler are bound in one place, and everyone else reads it.

ApiVersions, the dispatcher and the protocol support page are derived from `TABLE`; no version number is written twice.
A module under `server/apis/` declares its API by decorating its handler:

    @api(ApiKey.LIST_OFFSETS, versions=(1, 9))
    def handle(ctx: RequestContext, request: Message) -> Response: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.facts import fact
from broker_embedded.server.forwarding import to_controller as forwarded
from broker_embedded.server.futures import Promise
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.broker import Broker
    from broker_embedded.server.connection import Connection

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
    def client_host(self) -> str:
        """The client's address as groups list it."""
        return self.connection.client_host


@fact
class Api:
    """One served API."""

    key: ApiKey
    min_version: int
    max_version: int
    handler: Handler
    on_error: OnError | None
    listed_from: int
    """The lowest version that ApiVersions lists; lower than `min_version` only for Produce (KAFKA-18659)."""


TABLE: dict[int, Api] = {}


def api(
    key: ApiKey,
    *,
    versions: tuple[int, int],
    on_error: OnError | None = None,
    listed_from: int | None = None,
    to_controller: bool = False,
) -> Callable[[Handler], Handler]:
    """Bind a handler to an API. `on_error` shapes the response for a BrokerError that the handler raises.

    `to_controller`: the handler runs on the node whose controller is active, whichever node was asked.
    """

    def bind(handler: Handler) -> Handler:
        if key in TABLE:
            raise ValueError(f"{key.name} is bound twice: {TABLE[key].handler.__module__} and {handler.__module__}")
        lowest = versions[0] if listed_from is None else listed_from
        bound = forwarded(key, handler) if to_controller else handler
        TABLE[int(key)] = Api(
            key=key,
            min_version=versions[0],
            max_version=versions[1],
            handler=bound,
            on_error=on_error,
            listed_from=lowest,
        )
        return handler

    return bind
