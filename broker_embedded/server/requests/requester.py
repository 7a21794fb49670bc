"""The user and client id that quotas count, also for forwarded requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_embedded.server.net.connection import ClientConnection

_BEHALF_MARK = "\n"
_LONGEST_CLIENT_ID = 10_000

Requester = tuple[str, str | None]
"""User and client id."""


def requester(connection: ClientConnection, client_id: str | None) -> Requester:
    """Return the requester, also of a forwarded request."""
    if connection.is_of_peer:
        _, _, behalf = (client_id or "").partition(_BEHALF_MARK)
        user, named = json.loads(behalf)
        return user, named
    return connection.principal.removeprefix("User:"), client_id


def on_behalf_of(connection: ClientConnection, client_id: str | None) -> str:
    """Return the suffix of this node's client id in a forwarded request: the original requester."""
    if len(client_id or "") > _LONGEST_CLIENT_ID:
        return ""
    return _BEHALF_MARK + json.dumps(requester(connection, client_id))


def names_requester(client_id: str | None) -> bool:
    """Return whether another node's client id names an original requester."""
    return _BEHALF_MARK in (client_id or "")
