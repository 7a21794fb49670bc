"""One producer for all callers that ask for the same one: which ones this process has.

The same means: the same settings, and serdes that are equal. A producer that was closed, or that a fork carried into
another process, is not given out any more: the next caller gets a new one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ottla.errors import DeliveryError
from ottla.stepping import Steps


class _Closable(Protocol):
    @property
    def is_closed(self) -> bool: ...


P = TypeVar("P", bound=_Closable)


class Shared(Generic[P]):
    """The shared producers of one kind. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Hashable, P] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def get(self, identity: Hashable, make: Callable[[], P]) -> P:
        """Return the producer of this identity, made now if there is none."""
        with self._lock:
            found = self._made.get(identity)
            if found is None or found.is_closed:
                found = self._made[identity] = make()
            return found

    def __contains__(self, producer: object) -> bool:
        with self._lock:
            return any(made is producer for made in self._made.values())

    def take_all(self, belongs: Callable[[Hashable], bool] = lambda identity: True) -> list[P]:
        """Return all open ones, for the caller to close. They are not shared any more."""
        with self._lock:
            taken = [identity for identity in self._made if belongs(identity)]
            return [made for made in map(self._made.pop, taken) if not made.is_closed]

    def _forget(self) -> None:
        # In the child of a fork: the producers stayed with the parent, and so may a thread that has the lock.
        self._lock = threading.Lock()
        self._made = {}


def closing(producers: Iterable[Any], timeout_s: float | None) -> Steps[None]:
    """Flush and close them all. Raises the first `DeliveryError`, after all are closed."""
    first: DeliveryError | None = None
    for producer in producers:
        try:
            yield partial(producer.close, timeout_s)
        except DeliveryError as error:
            first = first or error
    if first is not None:
        raise first


def identity_of(make: partial[Any]) -> Hashable:
    """Return what makes two requests the same: every argument, a mapping by its items."""
    return _frozen(make.args), _frozen(make.keywords)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted((name, _frozen(item)) for name, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value if isinstance(value, Hashable) else id(value)
