"""State of the apps that run in this process, in either shell."""

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
        """Continue at `offset` in the group that has the partition."""

    def drain(self, timeout_s: Span) -> Any:
        """Stop fetching, and wait for all fetched records. Returns whether all are done. Awaited under `serve`."""

    def health(self) -> Health:
        """Return the app's health, as `App.health`."""

    def stop(self) -> None:
        """Ask it to stop, as `App.stop`."""
