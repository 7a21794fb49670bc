"""Sends a quorum member's requests to the others, and reports each response or failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import PeerDead, Peers
from broker_embedded.controller.raft import wire
from broker_embedded.controller.raft.events import Answered, Event, NotAnswered
from broker_embedded.controller.raft.member import Timeouts
from broker_embedded.controller.raft.messages import EndQuorumEpochRequest, FetchRequest, Request
from ottla_wire.protocol.message import Message

logger = logging.getLogger(__name__)

CHANNEL = "raft"
FETCH_CHANNEL = "raft-fetch"
MAX_WAIT_MS = 500
"""Kafka's longest long poll of the metadata log."""


class PeerRequests:
    """Every request ends in one event, until `close`."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str | None,
        peers: Peers,
        timeouts: Timeouts,
        on_outcome: Callable[[Event], None],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._peers = peers
        self._timeouts = timeouts
        self._on_outcome = on_outcome
        self._farewells: list[asyncio.Future[Message]] = []
        self._is_closed = False

    def send(self, to: int, request: Request) -> None:
        api, version = wire.VERSIONS[type(request)]
        max_wait_ms = min(MAX_WAIT_MS, self._timeouts.fetch_ms // 3)
        is_fetch = isinstance(request, FetchRequest)
        future = self._peers.send(
            to,
            api,
            version,
            wire.encode_request(request, to=to, cluster_id=self._cluster_id, max_wait_ms=max_wait_ms),
            channel=FETCH_CHANNEL if is_fetch else CHANNEL,
            timeout_ms=self._timeouts.fetch_ms if is_fetch else self._timeouts.election_ms,
        )
        future.add_done_callback(partial(self._settle, to, request))
        if isinstance(request, EndQuorumEpochRequest):
            self._farewells = [*(each for each in self._farewells if not each.done()), future]

    async def farewells(self) -> None:
        """Wait until all voters know of the resignation or could not be reached."""
        farewells, self._farewells = self._farewells, []
        if farewells:
            await asyncio.wait(farewells, timeout=self._timeouts.election_ms / 1000)

    def close(self) -> None:
        """Drop pending requests."""
        self._is_closed = True

    def _settle(self, peer: int, request: Request, future: asyncio.Future[Message]) -> None:
        error = None if future.cancelled() else future.exception()
        if self._is_closed:
            return
        response = None
        if error is not None and not isinstance(error, BrokerError):
            logger.error("node %d: node %d was not asked: %r", self._node_id, peer, request, exc_info=error)
        elif error is None and not future.cancelled():
            response = wire.decode_response(request, peer, future.result())
        if response is None:
            self._on_outcome(NotAnswered(peer=peer, request=request, is_dead=isinstance(error, PeerDead)))
        else:
            self._on_outcome(Answered(sender=peer, request=request, response=response))
