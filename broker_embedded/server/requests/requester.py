"""Who asks: the user and the client id that quotas count, also behind a node that passes a request on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_embedded.server.net.connection import Connection

_BEHALF_MARK = "\n"
_LONGEST_CLIENT_ID = 10_000

Requester = tuple[str, str | None]
"""User and client id."""


def requester(connection: Connection, client_id: str | None) -> Requester:
    """Who asks, also if another broker has passed it on."""
    if connection.is_of_peer:
        _, _, behalf = (client_id or "").partition(_BEHALF_MARK)
        user, named = json.loads(behalf)
        return user, named
    return connection.principal.removeprefix("User:"), client_id


def on_behalf_of(connection: Connection, client_id: str | None) -> str:
    """What is added to this node's own name when it passes a request on: who asks."""
    if len(client_id or "") > _LONGEST_CLIENT_ID:
        return ""
    return _BEHALF_MARK + json.dumps(requester(connection, client_id))


def names_requester(client_id: str | None) -> bool:
    """Whether the client id of another node says for whom it asks; if not, it asks for itself."""
    return _BEHALF_MARK in (client_id or "")
