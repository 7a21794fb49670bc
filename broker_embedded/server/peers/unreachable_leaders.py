"""Delays metadata responses right after a broker died, until the new leaders are known.

A client whose broker dies asks another one at once, and then, as librdkafka does, not again for up to a second. An
answer that comes from before the election makes it wait that second. A broker that has just lost its own connection to
the dead one knows that its metadata is about to change: it lets the request wait for that, `WAIT_MS` at most after it
noticed. What is answered is what the metadata says, sooner or later; nothing is made up.

A connection that was lost for another reason, to a node that still listens, holds nobody up: that is asked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from broker_embedded.common.clock import Clock, client_monotonic_ms, client_timer
from broker_embedded.common.peers import DeathProbe
from broker_embedded.common.promises import Promise, settle
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage, TopicImage

WAIT_MS = 250
"""Two voters elect a controller, and that one the leaders, in less on a machine that has something to do."""


class UnreachableLeaders:
    """Nodes that one broker has just lost. A client waits in real time, not in the cluster's."""

    def __init__(
        self, *, probe: DeathProbe, metadata: MetadataCache, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self._probe = probe
        self._call_later = client_timer(loop)
        self._now_ms = client_monotonic_ms(clock)
        self._lost: dict[int, int] = {}
        """Until when to wait for each node."""
        self._waiting: dict[Promise[None], Callable[[], Iterable[TopicImage]]] = {}
        metadata.add_listener(self._on_metadata)

    def lost(self, node: int) -> None:
        """Record that a connection to a node ended unexpectedly."""
        self._forget_expired()
        if node not in self._lost:
            self._lost[node] = self._now_ms() + WAIT_MS
            self._probe.is_dead(node).add_done_callback(partial(self._asked, node))

    def wait(self, topics: Callable[[], Iterable[TopicImage]]) -> Promise[None] | None:
        """Return a promise that resolves when no lost node leads `topics`, or after a timeout; None if there is no
        need.
        """
        if not self._lost:
            return None
        self._forget_expired()
        if not self._are_concerned(topics):
            return None
        promise: Promise[None] = Promise()
        timer = self._call_later((max(self._lost.values()) - self._now_ms()) / 1000, settle, promise, None)
        self._waiting[promise] = topics
        promise.add_done_callback(lambda _: self._end(promise, timer))
        return promise

    def _asked(self, node: int, done: asyncio.Future[bool]) -> None:
        is_dead = not done.cancelled() and done.result()
        if not is_dead:
            self._lost.pop(node, None)
            self._look_again()

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        self._look_again()

    def _look_again(self) -> None:
        for promise, topics in list(self._waiting.items()):
            if not self._are_concerned(topics):
                settle(promise, None)

    def _are_concerned(self, topics: Callable[[], Iterable[TopicImage]]) -> bool:
        """Return whether one of their partitions will get another leader."""
        return any(
            state.leader in self._lost and len(state.isr) > 1
            for topic in topics()
            for state in topic.partitions.values()
        )

    def _forget_expired(self) -> None:
        now_ms = self._now_ms()
        for node in [node for node, until_ms in self._lost.items() if until_ms <= now_ms]:
            del self._lost[node]

    def _end(self, promise: Promise[None], timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._waiting.pop(promise, None)
