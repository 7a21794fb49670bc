"""What may be asked of an app that runs, in either shell."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakSet

from ottla.consumer.readiness.health import Health
from ottla.quantities import Span
from ottla.records import TopicPartition

running_apps: WeakSet[Any] = WeakSet()
"""The apps of this process that run now."""


class Runner(Protocol):
    """The runner of an app: `app.runner`."""

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in the group that has the partition."""

    def drain(self, timeout_s: Span) -> Any:
        """Take nothing new, and wait until everything fetched is done: whether it was. Awaited under `serve`."""

    def health(self) -> Health:
        """Return how it is, as `App.health`."""

    def stop(self) -> None:
        """Ask it to stop, as `App.stop`."""
