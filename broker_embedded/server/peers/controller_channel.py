"""A broker's requests to the active controller: found through the quorum, and repeated when it moves or does not
respond.

A request may be done twice when an answer is lost. All that brokers ask bears it: registrations name their incarnation,
ISR changes the partition epoch they start from, a topic that is there already is what was wanted, and a block of
producer ids that nobody uses is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

from broker_embedded.common.peers import DEFAULT_TIMEOUT_MS, Peers, PeerUnavailable
from broker_embedded.common.promises import look_at
from broker_embedded.common.types import NO_LEADER
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

LOOK_AGAIN_MS = 5
"""No request is sent for it: this node knows whether the quorum has a leader."""
FIRST_BACKOFF_MS = 2
MAX_BACKOFF_MS = 80
WATCH_MS = 50
"""Interval at which a pending request checks whether the controller has moved."""


class Leadership(Protocol):
    """The quorum, as far as this module is concerned."""

    @property
    def leader_id(self) -> int: ...


class ControllerChannel:
    """Implements `ControllerRequests` for one node."""

    def __init__(
        self,
        *,
        peers: Peers,
        quorum: Leadership,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        attempt_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """`attempt_timeout_ms`: how long one node may take before it is asked again, or another one is."""
        self.peers = peers
        self.quorum = quorum
        self.loop = loop
        self.random = random
        self.attempt_timeout_ms = attempt_timeout_ms
        self._under_way: dict[_Request, None] = {}

    def send(
        self, api: ApiKey, version: int, body: Mapping[str, Any], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> asyncio.Future[Message]:
        request = _Request(self, api, version, body, timeout_ms)
        self._under_way[request] = None
        request.answer.add_done_callback(lambda _: self._under_way.pop(request, None))
        request.ask()
        return request.answer

    def close(self) -> None:
        """Fail all waiting requests."""
        for request in list(self._under_way):
            request.fail("this node stops")


class _Request:
    """One request until its response or timeout."""

    def __init__(
        self, channel: ControllerChannel, api: ApiKey, version: int, body: Mapping[str, Any], timeout_ms: int
    ) -> None:
        self._channel = channel
        self._api = api
        self._version = version
        self._body = body
        self._backoff_ms = FIRST_BACKOFF_MS
        self._problem = "no controller is known"
        self._attempt: asyncio.Future[Message] | None = None
        self._asked = NO_LEADER
        loop = channel.loop
        self._deadline = loop.time() + timeout_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        expiry = loop.call_later(timeout_ms / 1000, self._expire, timeout_ms)
        self.answer: asyncio.Future[Message] = loop.create_future()
        self.answer.add_done_callback(look_at)
        self.answer.add_done_callback(lambda _: expiry.cancel())
        self.answer.add_done_callback(lambda _: self._stop())

    def ask(self) -> None:
        """Send the request to the current leader."""
        if self.answer.done():
            return
        channel = self._channel
        self._asked = channel.quorum.leader_id
        if self._asked == NO_LEADER:
            self._timer = channel.loop.call_later(LOOK_AGAIN_MS / 1000, self.ask)
            return
        left_ms = max(int((self._deadline - channel.loop.time()) * 1000), 1)
        # Heartbeats have a line of their own: none of them may wait behind a slow change.
        line = "heartbeats" if self._api is ApiKey.BROKER_HEARTBEAT else "controller"
        attempt = channel.peers.send(
            self._asked,
            self._api,
            self._version,
            self._body,
            channel=line,
            timeout_ms=min(left_ms, channel.attempt_timeout_ms),
        )
        self._attempt = attempt
        attempt.add_done_callback(self._answered)
        self._timer = channel.loop.call_later(WATCH_MS / 1000, self._watch)

    def fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(PeerUnavailable(reason))

    def _watch(self) -> None:
        """Watch for another leader: a node that is cut off or dead may never say so."""
        has_moved = self._channel.quorum.leader_id not in (self._asked, NO_LEADER)
        if has_moved:
            self._problem = f"the controller has moved away from node {self._asked}"
            self._attempt = None
            self._again()
        else:
            self._timer = self._channel.loop.call_later(WATCH_MS / 1000, self._watch)

    def _answered(self, attempt: asyncio.Future[Message]) -> None:
        if attempt is not self._attempt or self.answer.done():
            return
        self._attempt = None
        self._stop()
        if attempt.cancelled():
            self._again()
            return
        error = attempt.exception()
        if isinstance(error, PeerUnavailable):
            self._problem = error.message
            self._again()
        elif error is not None:
            self.answer.set_exception(error)
        elif says_not_controller(attempt.result()):
            self._problem = f"node {self._asked} is not the controller"
            self._again()
        else:
            self.answer.set_result(attempt.result())

    def _again(self) -> None:
        delay_ms = self._backoff_ms * self._channel.random.uniform(0.8, 1.2)
        self._backoff_ms = min(self._backoff_ms * 2, MAX_BACKOFF_MS)
        self._timer = self._channel.loop.call_later(delay_ms / 1000, self.ask)

    def _expire(self, timeout_ms: int) -> None:
        self.fail(f"no controller answered {self._api.name} within {timeout_ms} ms: {self._problem}")

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def says_not_controller(message: Message) -> bool:
    """Return whether a response, or a part of it, says that its node is not the active controller."""
    for name in message.FIELDS:
        value = getattr(message, name)
        if name == "error_code":
            if value == ErrorCode.NOT_CONTROLLER:
                return True
        elif isinstance(value, list) and any(isinstance(each, Message) and says_not_controller(each) for each in value):
            return True
    return False
