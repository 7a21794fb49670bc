"""Requests between nodes of a cluster: always by the wire protocol, to any node.

The protocols here are what replication, the controller's clients, the quorum and the coordinators are given; the server
layer implements them. So none of them knows a socket, and a link that is cut cuts all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

DEFAULT_TIMEOUT_MS = 30_000


class PeerUnavailable(BrokerError):
    """No answer came: refused, cut off, closed in between, or too late. The request may or may not have been done."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class PeerDead(PeerUnavailable):
    """No process listens on the peer's port: it has ended.

    Never said of a peer that is slow, paused or behind a cut link: the kernel of a process that lives accepts.
    """


class Peers(Protocol):
    """All nodes of the cluster, this one included: a request to it leaves the process's sockets alone."""

    def send(
        self,
        node: int,
        api: ApiKey,
        version: int,
        body: Mapping[str, Any],
        *,
        channel: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> asyncio.Future[Message]:
        """Return the decoded response; the future fails with PeerUnavailable without one.

        Requests of one `channel` share a connection and are answered one after the other: long polls take a channel
        of their own.
        """
        ...

    def send_encoded(
        self,
        node: int,
        api: ApiKey,
        version: int,
        body: bytes,
        *,
        channel: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        on_behalf_of: str = "",
    ) -> asyncio.Future[bytes]:
        """Send an encoded body and return the encoded response, for a forwarded request. `on_behalf_of` names the
        original requester if the receiver needs it."""
        ...


class DeathProbe(Protocol):
    """How a node finds out whether another one is dead."""

    def is_dead(self, node: int) -> asyncio.Future[bool]:
        """Return whether no process listens for `node`. False if one does, and if it is unknown."""
        ...


class ControllerRequests(Protocol):
    """The active controller, wherever it is: found again and asked again when it moves."""

    def send(
        self, api: ApiKey, version: int, body: Mapping[str, Any], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> asyncio.Future[Message]:
        """Send a request; returns the decoded response. Raises PeerUnavailable if no controller answers within the
        timeout."""
        ...
