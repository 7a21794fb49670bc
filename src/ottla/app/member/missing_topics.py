"""Topics that a running member reads and that the cluster does not have any more. Pure.

Deleting one topic of several must not end a service: it reads the others, is not ready, and goes on when the topic is
there again. Clients find that out late by themselves (`metadata.max.age.ms`), so the shells ask every second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.consumer.model.effects import Notice
from ottla.records import TopicPartition

_ASK_EVERY_MS: Final = 1_000


class MissingTopics:
    """The missing topics of one member. `now_ms` is monotonic; `on_gone` is called for a deleted topic."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        assignment: Callable[[], Iterable[TopicPartition]],
        notice: Callable[[Notice], object],
        on_gone: Callable[[str], object],
    ) -> None:
        self._now_ms = now_ms
        self._assignment = assignment
        self._notice = notice
        self._on_gone = on_gone
        self._since_ms: dict[str, int] = {}
        self._suspects: set[str] = set()
        self._ask_ms = 0

    def __contains__(self, topic: str) -> bool:
        return topic in self._since_ms

    def gone(self, topic: str) -> None:
        """Report that the cluster does not have a topic that the member reads; it continues to read the others."""
        self._suspects.discard(topic)
        if topic not in self._since_ms:
            now_ms = self._since_ms[topic] = self._now_ms()
            self._ask_ms = max(self._ask_ms, now_ms + _ASK_EVERY_MS)
            self._on_gone(topic)
            self._notice(Notice("topic_missing", "warning", {"topic": topic}))

    def suspect(self, revoked: Iterable[TopicPartition]) -> None:
        """Ask for the topics whose partitions were all revoked: another member may have them, or they were deleted."""
        topics = {name.topic for name in revoked} - {name.topic for name in self._assignment()}
        if topics:
            self._suspects |= topics
            self._ask_ms = max(self._ask_ms, self._now_ms() + _ASK_EVERY_MS)

    def found(self, topic: str) -> None:
        """Report that the cluster has the topic."""
        self._suspects.discard(topic)
        since_ms = self._since_ms.pop(topic, None)
        if since_ms is not None:
            missing_s = round((self._now_ms() - since_ms) / 1_000, 1)
            self._notice(Notice("topic_found", "info", {"topic": topic, "missing_s": missing_s}))

    def to_ask(self) -> list[str]:
        """Return the topics to ask the cluster for now: `gone` or `found` is the answer."""
        now_ms = self._now_ms()
        if not (self._since_ms or self._suspects) or now_ms < self._ask_ms:
            return []
        self._ask_ms = now_ms + _ASK_EVERY_MS
        self._suspects -= {name.topic for name in self._assignment()}
        return sorted(self._suspects.union(self._since_ms))

    def problems(self) -> list[str]:
        """Return the sentence of a health check about the missing topics."""
        now_ms = self._now_ms()
        return [
            f"topic {topic} does not exist, for {max(0, now_ms - since_ms) / 1_000:.0f} s: was it deleted? It is read "
            "again as soon as it is there"
            for topic, since_ms in sorted(self._since_ms.copy().items())
        ]
