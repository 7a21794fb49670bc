"""What a handler may ask about the delivery it is called for, beyond the record itself."""

from __future__ import annotations

from typing import Any

from ottla.records import TopicPartition


class Context:
    """One delivery. Made once per run, so it says nothing about a single record.

    `attempt` is 1 for the first delivery; `state` is the app's own dictionary, shared by all its handlers.
    """

    __slots__ = ("attempt", "group", "handler", "state", "topic_partition")

    def __init__(
        self, *, group: str, handler: str, topic_partition: TopicPartition, attempt: int, state: dict[str, Any]
    ) -> None:
        self.group = group
        self.handler = handler
        self.topic_partition = topic_partition
        self.attempt = attempt
        self.state = state

    @property
    def is_retry(self) -> bool:
        return self.attempt > 1

    def __repr__(self) -> str:
        return f"Context({self.handler}, {self.topic_partition}, attempt={self.attempt})"
