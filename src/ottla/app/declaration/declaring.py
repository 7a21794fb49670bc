"""What the parts of `App` that declare something have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from ottla.app.declaration.declarations import Declarations
from ottla.app.declaration.route import Route
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy
from ottla.consumer.partitions.plan import plans_by_topic
from ottla.errors import ConfigError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.outcomes import Outcome
from ottla.failures.retry import RetryPolicy
from ottla.quantities import count
from ottla.telemetry import Hooks

F = TypeVar("F", bound=Callable[..., Any])

_MOST_CONCURRENT: Final = 10_000


class Declares(ABC):
    """Base of what declares on an `App` or a `Router`."""

    _parts: Declarations

    @abstractmethod
    def _refuse_while_running(self, what: str) -> None: ...

    @abstractmethod
    def _declare(self, what: str, add: Callable[[DeclaresOnApp, F], object]) -> Callable[[F], F]:
        """Return a decorator that adds a function to the app: at once, or when the router is included."""


class DeclaresOnApp(Declares):
    """Base of the parts of `App`: the defaults for what they declare."""

    group: str
    bootstrap_servers: str | Sequence[str] | None
    dead_letter_topic: str | None
    commit: CommitPolicy | AtMostOnce
    settings: dict[str, Any]
    producer_settings: dict[str, Any]
    start_timeout_s: float | None
    unready_after_s: float
    drain_s: float
    hooks: Hooks | None
    _retry: RetryPolicy
    _on_error: Mapping[type[BaseException], Outcome]
    _budget: DeadLetterBudget | None

    def _add(self, route: Route) -> None:
        same_group = [other for other in self._parts.routes if other.group == route.group]
        if any((other.queue is None) != (route.queue is None) for other in same_group):
            raise ConfigError(
                f"{route.name}: group {route.group!r} has handlers and a queue, and a share group cannot have the name "
                f"of a consumer group; give the queue a group of its own: group={route.group + '.queue'!r}"
            )
        if any(other.name == route.name for other in same_group):
            raise ConfigError(f"group {route.group!r} has a handler named {route.name!r} already; give one a name=")
        plans_by_topic([other.plan() for other in [*same_group, route]])
        self._parts.routes.append(route)


def check_concurrency(what: str, concurrency: int) -> None:
    """Raise `ConfigError` unless so many runs can be handled at the same time."""
    why = "each is a thread or a task, which is made when the app starts"
    count(what, "concurrency", concurrency, most=_MOST_CONCURRENT, why=why)
