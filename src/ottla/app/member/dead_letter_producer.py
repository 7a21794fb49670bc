"""Base of the shells' sinks: they write dead letters, and records for retry topics, with a producer of their own.

A sink reports each write when it is acknowledged, with its form, or when it fails. Records are not held to a limit on
their uncompressed size here: what their own topic took compressed, a dead letter topic takes as well. Only if a broker
refuses a record as too large, it is sent again in its next, smaller form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ottla.config import dead_letter_arguments
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.errors import DeliveryError
from ottla.failures.dead_letter import DeadLetterRecord
from ottla.failures.dead_letter_settings import dead_letter_settings
from ottla.producer.record_sends import never_in_handlers
from ottla.stepping import Steps

P = TypeVar("P")


class DeadLetterProducer(ABC):
    """Creates the producer of dead letters with the first of them: most services never need it."""

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._arguments = dead_letter_arguments(dead_letter_settings(settings))
        self._producer: Any = None

    @abstractmethod
    def write(self, failed_write: Write, on_written: OnWritten, /) -> None:
        """Start writing. Does not raise, and calls `on_written` in the end."""

    @abstractmethod
    def close(self, timeout_s: float) -> Any:
        """Wait for what is under way, at most `timeout_s` seconds. On an event loop this is to be awaited."""

    @property
    def _problems(self) -> tuple[str, ...]:
        """Topics whose records brokers do not take for now, and why."""
        return () if self._producer is None else self._producer._problems

    def _made(self, make: Callable[..., P]) -> P:
        producer: Any = make(self._bootstrap_servers, profile="low_latency", **self._arguments)
        producer._sizes.leave_to_broker()
        never_in_handlers(producer)
        made: P = producer
        return made

    def _closing(self, timeout_s: float) -> Steps[None]:
        """Wait for what is under way, at most `timeout_s` seconds, and close the producer."""
        if self._producer is not None:
            try:
                yield partial(self._producer.close, timeout_s)
            except DeliveryError:
                pass  # Each failure was reported to the session, which has not committed those records.


def send_arguments(failed_write: Write, dead: DeadLetterRecord) -> dict[str, Any]:
    """Return the arguments of a producer's `send` that write this form of a failed record."""
    return {
        "topic": failed_write.target,
        "value": dead.value,
        "key": dead.key,
        "headers": dead.headers,
        "partition": failed_write.target_partition,
        "detached": True,
    }
