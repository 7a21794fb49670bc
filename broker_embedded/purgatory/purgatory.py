"""Operations that wait for an event, each with a timeout.

An operation is watched under one or more keys (usually partitions). An event on a key lets every operation watched
there look again; the one that is satisfied completes, leaves all its keys and cancels its timer. Nothing is ever found
by polling: the timer only decides when to stop waiting. Everything runs on the loop's thread, so an operation completes
exactly once without a lock.

How long a client waits is the client's time, how long a node waits for another one is the cluster's (`common.clock`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from broker_embedded.common.clock import client_timer

K = TypeVar("K", bound=Hashable)


class DelayedOperation(Generic[K]):
    """A waiting operation. Subclasses define when it is satisfied and what happens then."""

    __slots__ = ("_keys", "_timer", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._keys: tuple[K, ...] = ()
        self._timer: asyncio.TimerHandle | None = None

    def is_satisfied(self, key: K, amount: int) -> bool:
        """Return whether it may complete after an event on `key`. `amount` is the event's size (bytes for an
        append).
        """
        raise NotImplementedError

    def on_complete(self) -> None:
        """Handle satisfaction; called once."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Handle the timeout; called once, instead of `on_complete`."""
        raise NotImplementedError


class Purgatory(Generic[K]):
    """Table of waiting operations by key."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_later = loop.call_later
        self._client_call_later = client_timer(loop)
        self._watched: dict[K, list[DelayedOperation[K]]] = {}

    def watch(self, operation: DelayedOperation[K], keys: Iterable[K], *, timeout_ms: int) -> None:
        """Let `operation` wait for events on `keys`, at most `timeout_ms` of the client that asked for it.

        The caller has just found it unsatisfied, on this same thread: no event can slip in between.
        """
        self._enter(operation, keys)
        operation._timer = self._client_call_later(timeout_ms / 1000, self._expire, operation)

    def watch_for_node(self, operation: DelayedOperation[K], keys: Iterable[K], *, timeout_ms: int) -> None:
        """Watch for a wait that a node of the cluster asked for: a follower's fetch."""
        self._enter(operation, keys)
        operation._timer = self._call_later(timeout_ms / 1000, self._expire, operation)

    def watch_also(self, operation: DelayedOperation[K], key: K) -> None:
        """Let an operation that waits wait for events on one more key."""
        operation._keys += (key,)
        self._watched.setdefault(key, []).append(operation)

    def is_watched(self, key: K) -> bool:
        """Return whether an operation waits on `key`: the produce path checks this first."""
        return key in self._watched

    def notify(self, key: K, amount: int = 0, *, place: K | None = None) -> int:
        """Report an event on `key`. Completes satisfied operations; returns how many.

        `place`: the key of the waiting operations, if it is another one.
        """
        operations = self._watched.get(key if place is None else place)
        if operations is None:
            return 0
        satisfied = [operation for operation in operations if operation.is_satisfied(key, amount)]
        for operation in satisfied:
            if not operation.is_done:
                self._leave(operation)
                operation.on_complete()
        return len(satisfied)

    def cancel(self, operation: DelayedOperation[K]) -> None:
        """Forget an operation whose caller has disconnected: neither hook runs."""
        if not operation.is_done:
            self._leave(operation)

    def close(self) -> None:
        """Forget everything that waits; the connections it would answer are closed with the server."""
        for operations in list(self._watched.values()):
            for operation in list(operations):
                self.cancel(operation)

    def __len__(self) -> int:
        return len({id(operation) for operations in self._watched.values() for operation in operations})

    def _expire(self, operation: DelayedOperation[K]) -> None:
        if not operation.is_done:
            self._leave(operation)
            operation.on_expire()

    def _enter(self, operation: DelayedOperation[K], keys: Iterable[K]) -> None:
        operation._keys = tuple(keys)
        for key in operation._keys:
            self._watched.setdefault(key, []).append(operation)

    def _leave(self, operation: DelayedOperation[K]) -> None:
        operation.is_done = True
        if operation._timer is not None:
            operation._timer.cancel()
        for key in operation._keys:
            operations = self._watched.get(key)
            if operations is None:
                continue
            if len(operations) == 1:
                del self._watched[key]
            else:
                operations.remove(operation)
