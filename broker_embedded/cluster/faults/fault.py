"""One fault of requests, as tests use it from any thread.

with cluster.faults.add(api="PRODUCE", topic="t", partition=0, error="NOT_LEADER_OR_FOLLOWER", count=3) as fault:
    ...
    fault.wait(hits=3)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broker_embedded.cluster.faults.actions import Action, Hold, action_to_json
from broker_embedded.cluster.faults.selector import InvalidFault, Selector
from broker_embedded.cluster.faults.subject import Subject

if TYPE_CHECKING:
    from broker_embedded.cluster.faults.model import Faults

log = logging.getLogger(__name__)


class Fault:
    """One fault and its history. As a context manager it is removed at the end of the block."""

    def __init__(
        self, faults: Faults, fault_id: int, selector: Selector, action: Action, *, count: int | None, skip: int
    ) -> None:
        self.id = fault_id
        self.selector = selector
        self.action = action
        self.count = count
        self.skip = skip
        self.hits = 0
        """How often it has acted: once per request, or once per partition if it names partitions."""
        self.failure: Exception | None = None
        """Error of its predicate."""
        self.is_armed = True
        self.is_released = False
        self._faults = faults
        self._to_skip = skip
        self._held: list[Callable[[], None]] = []
        """Releases each request that is held at the moment."""
        self._changed = threading.Condition()

    # --- acting, on the cluster's thread

    def matches(self, subject: Subject, *, by_name: bool) -> bool:
        """Return whether it is about this request. `by_name`: the request must name what the selector names."""
        if not self.is_armed:
            return False
        try:
            selector = self.selector
            return selector.matches_sender(subject) and (selector.matches_names(subject) if by_name else True)
        except Exception as error:
            log.exception("fault %d: its predicate failed on %s", self.id, subject.api.name)
            self.failure = error
            self._notify()
            return False

    def take(self) -> bool:
        """Count one occasion; True if the fault acts on it."""
        if not self.is_armed:
            return False
        if self._to_skip:
            self._to_skip -= 1
            return False
        self.hits += 1
        if self.count is not None and self.hits >= self.count:
            self._faults.disarm(self)
        self._notify()
        return True

    def hold(self, release: Callable[[], None]) -> None:
        """Keep a request until the fault is released; `release` lets it go on."""
        if self.is_released:
            release()
        else:
            self._held.append(release)

    # --- on any thread

    @property
    def held(self) -> int:
        """Return how many requests it keeps at the moment."""
        return len(self._held)

    def release(self) -> None:
        """Release everything that a `hold` holds; it holds nothing more."""

        def run() -> None:
            if isinstance(self.action, Hold):
                self._faults.disarm(self)
                self.is_released = True
            held, self._held = self._held, []
            for release in held:
                release()

        self._faults.on_loop(run)

    def remove(self) -> None:
        """Remove the fault, and release what it holds."""

        def run() -> None:
            self._faults.forget(self)
            self.release()
            self._notify()

        self._faults.on_loop(run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def wait(self, hits: int = 1, timeout_s: float = 10) -> Self:
        """Block until it has acted `hits` times; TimeoutError says how often it has. Never on the cluster's thread."""
        with self._changed:
            self._changed.wait_for(lambda: self.hits >= hits or self.failure is not None, timeout_s)
        if self.failure is not None:
            raise InvalidFault(f"fault {self.id}: its predicate failed: {self.failure!r}") from self.failure
        if self.hits < hits:
            raise TimeoutError(
                f"fault {self.id} ({self.description}): found {self.hits} hits after {timeout_s} s, wanted {hits}"
            )
        return self

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- showing

    @property
    def description(self) -> str:
        """The fault as text: `PRODUCE topic=t partition=0: error=NOT_LEADER_OR_FOLLOWER`."""
        selected = self.selector.to_json()
        api = selected.pop("api", "any request")
        names = "".join(f" {name}={value}" for name, value in selected.items())
        action = ", ".join(f"{name}={value}" for name, value in action_to_json(self.action).items())
        return f"{api}{names}: {action}"

    def to_json(self) -> dict[str, Any]:
        """As the control API shows it."""
        return {
            "id": self.id,
            **self.selector.to_json(),
            **action_to_json(self.action),
            "count": self.count,
            "skip": self.skip,
            "hits": self.hits,
            "held": self.held,
            "armed": self.is_armed,
        }

    def __repr__(self) -> str:
        return f"<Fault {self.id} {self.description}, {self.hits} hits>"
