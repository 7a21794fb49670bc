"""Topics that a running member reads and that the cluster does not have any more. Pure.

Deleting one topic of several must not end a service: it reads the others, is not ready, and goes on when the topic is
there again. Clients find that out late by themselves (`metadata.max.age.ms`), so the shells ask every second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.records import TopicPartition

_ASK_EVERY_MS: Final = 1_000


class MissingTopics:
    """The missing topics of one member. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}
        self._suspects: set[str] = set()
        self._ask_ms = 0

    def __contains__(self, topic: str) -> bool:
        return topic in self._since_ms

    def gone(self, topic: str, now_ms: int) -> bool:
        """Record that the cluster does not have the topic. Returns whether that is new."""
        self._suspects.discard(topic)
        if topic in self._since_ms:
            return False
        self._since_ms[topic] = now_ms
        self._ask_ms = max(self._ask_ms, now_ms + _ASK_EVERY_MS)
        return True

    def suspect(self, topics: Iterable[str], now_ms: int) -> None:
        """Ask for these topics again, as all their partitions were revoked: another member may have them, or the topic
        is gone."""
        self._suspects.update(topics)
        self._ask_ms = max(self._ask_ms, now_ms + _ASK_EVERY_MS)

    def found(self, topic: str, now_ms: int) -> int | None:
        """Record that the cluster has the topic. Returns how long it was missing, or None if it was not."""
        self._suspects.discard(topic)
        since_ms = self._since_ms.pop(topic, None)
        return None if since_ms is None else now_ms - since_ms

    def to_ask(self, now_ms: int, assigned: Callable[[], Iterable[TopicPartition]]) -> list[str]:
        """Return the topics to ask the cluster for now: `gone` or `found` is the answer."""
        if not (self._since_ms or self._suspects) or now_ms < self._ask_ms:
            return []
        self._ask_ms = now_ms + _ASK_EVERY_MS
        self._suspects -= {name.topic for name in assigned()}
        return sorted(self._suspects.union(self._since_ms))

    def problems(self, now_ms: int) -> list[str]:
        """Return the sentence of a health check about the missing topics."""
        return [
            f"topic {topic} does not exist, for {max(0, now_ms - since_ms) / 1_000:.0f} s: was it deleted? It is read "
            "again as soon as it is there"
            for topic, since_ms in sorted(self._since_ms.copy().items())
        ]
