"""The destination of the rows that a handler of columns returns (`to=`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ottla.errors import ConfigError, LifecycleError
from ottla.once.transaction_parts import TransactionPart
from ottla.records import topic_problem
from ottla_wire.facts import fact


class ResultSettings:
    """One handler's. `submit` is set by the member that runs it."""

    def __init__(self, topic: str, *, name: str, reads: frozenset[str]) -> None:
        problem = topic_problem(topic) if isinstance(topic, str) else f"a topic is text, got {topic!r}"
        if problem is not None:
            raise ConfigError(f"{name}: to: {problem}")
        if topic in reads:
            raise ConfigError(
                f"{name}: {topic!r} is both a topic it handles and the one its results go to; they would come back for "
                "ever"
            )
        self.topic = topic
        self.name = name
        self.submit: Callable[[TransactionPart], None] = self._not_running

    def _not_running(self, work: TransactionPart) -> None:
        raise LifecycleError(
            f"{self.name}: its results are written only while its app runs, and the app is not running"
        )


@fact
class ResultOptions:
    """The writing of one member of a group."""

    handlers: Sequence[ResultSettings]
    group: str
    bootstrap_servers: Any
    producer_settings: Mapping[str, Any] = field(default_factory=dict)
