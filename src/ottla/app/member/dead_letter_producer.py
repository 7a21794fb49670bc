"""Base of the shells' sinks: they write dead letters, and records for retry topics, with a producer of their own.

A sink reports each write when it is acknowledged, with its form, or when it fails. Records are not held to a limit on
their uncompressed size here: what their own topic took compressed, a dead letter topic takes as well. Only if a broker
refuses a record as too large, it is sent again in its next, smaller form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.config import dead_letter_arguments
from ottla.failures.dead_letter_settings import dead_letter_settings
from ottla.producer.record_sends import never_in_handlers

P = TypeVar("P")


class DeadLetterProducer:
    """Creates the producer of dead letters with the first of them: most services never need it."""

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._arguments = dead_letter_arguments(dead_letter_settings(settings))
        self._producer: Any = None

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
