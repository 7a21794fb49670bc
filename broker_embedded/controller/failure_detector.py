"""Detects dead brokers at once where that is certain.

The end of a process closes its connections and its listeners, and the kernel refuses who connects then. So when the
connection over which a broker's heartbeats came is closed, the active controller knocks: a broker that refuses is
dead, any other answer, or none, leaves it to its session. A controller that has just become active knocks at everybody,
because the broker whose controller was active before may be the one that died.

A process listens before it registers and until it ends. Hence a knock that begins after a registration and is refused
speaks of the process that registered, or of an earlier one: never of one that lives. Nothing that is acknowledged
depends on it: who is fenced by mistake is treated as who is fenced by its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from broker_embedded.common.peers import DeathProbe
from broker_embedded.metadata.image import BrokerImage


class FailureDetector:
    """Part of the controller; acts only while that is active."""

    def __init__(
        self,
        *,
        alive: Callable[[], Iterable[BrokerImage]],
        probe: DeathProbe | None,
        on_death: Callable[[int, int], None],
    ) -> None:
        """`alive`: the brokers that are not fenced. `on_death` is given a broker's id and its epoch."""
        self._alive = alive
        self._probe = probe
        self._on_death = on_death
        self._is_active = False
        self._lines: dict[int, object] = {}
        self._under_way: dict[int, int] = {}
        """The brokers that are being asked, with the epochs that they were registered with."""

    def activate(self) -> None:
        """Start a new term: check every broker, as none has sent a heartbeat to this controller."""
        self._is_active = True
        self._lines.clear()
        self._ask(self._alive())

    def deactivate(self) -> None:
        """Stop: another node's controller is active."""
        self._is_active = False
        self._lines.clear()

    def on_response(self, node: int, line: object) -> None:
        """Record that a heartbeat of a broker came over this connection."""
        if self._is_active:
            self._lines[node] = line

    def on_connection_closed(self, line: object) -> None:
        """Check the broker that used a closed connection."""
        nodes = [node for node, heard in self._lines.items() if heard is line]
        for node in nodes:
            del self._lines[node]
        if nodes:
            self._ask(broker for broker in self._alive() if broker.broker_id in nodes)

    def _ask(self, brokers: Iterable[BrokerImage]) -> None:
        if self._probe is None:
            return
        for broker in list(brokers):
            node, epoch = broker.broker_id, broker.epoch
            if self._under_way.get(node) != epoch:
                self._under_way[node] = epoch
                self._probe.is_dead(node).add_done_callback(partial(self._answered, node, epoch))

    def _answered(self, node: int, epoch: int, done: asyncio.Future[bool]) -> None:
        if self._under_way.get(node) == epoch:
            del self._under_way[node]
        is_dead = not done.cancelled() and done.result()
        if is_dead and self._is_active:
            self._on_death(node, epoch)
