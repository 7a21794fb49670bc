"""Caches a registry's answers by key, for all threads.

Threads that want the same key wait for one question; other keys do not wait for it. An answer is kept for ever, because
a schema id never changes its meaning. A refusal (there is no such schema, or it cannot be used) is kept for a while,
so that a poison record does not become a request each time: ten seconds at first, because the registry may be a replica
that is behind, and twice as long after each further refusal, up to a minute. An outage is not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.clock import Clock
from ottla.errors import RegistryUnavailable

K = TypeVar("K")
V = TypeVar("V")

REFUSED_FOR_MS: Final = 10_000
"""How long a refusal is kept at first."""
REFUSED_FOR_MOST_MS: Final = 60_000
MOST_REFUSALS: Final = 1_000
"""Refusals that are kept at once. Ids of hostile bytes are many: the oldest are forgotten."""


class _Refusal(NamedTuple):
    error: type[Exception]
    text: str
    until_ms: int
    lasts_ms: int


class _RunningLookup:
    """One that is being asked. `outage` is its result, if that was an outage; else it is in the tables."""

    __slots__ = ("ended", "outage")

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.outage = ""


class Lookups(Generic[K, V]):
    """Caches answers by key. `refusals` are cached errors; each is raised again from its text."""

    __slots__ = ("_asked", "_clock", "_lock", "_refusals", "_refused", "found")

    def __init__(self, clock: Clock, *, refusals: tuple[type[Exception], ...] = ()) -> None:
        self.found: dict[K, V] = {}
        """The answers. Read it directly where a call for each record would cost."""
        self._clock = clock
        self._refusals = refusals
        self._refused: dict[K, _Refusal] = {}
        self._asked: dict[K, _RunningLookup] = {}
        self._lock = threading.Lock()

    def answers(self, key: K) -> bool:
        """Return whether `get` would return or raise at once."""
        if key in self.found:
            return True
        refusal = self._refused.get(key)
        return refusal is not None and refusal.until_ms > self._clock.monotonic_ms()

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """Return the answer for `key`, from `ask` on a miss. Raises errors of `ask`; a refusal is cached for a
        while.
        """
        while True:
            with self._lock:
                if key in self.found:
                    return self.found[key]
                self._raise_refusal(key)
                question = self._asked.get(key)
                if question is None:
                    own = self._asked[key] = _RunningLookup()
                    break
            question.ended.wait()
            if question.outage:
                raise RegistryUnavailable(question.outage)
        try:
            answer = ask()
        except RegistryUnavailable as outage:
            own.outage = str(outage)
            raise
        except self._refusals as refusal:
            self._keep_refusal(key, refusal)
            raise
        else:
            self.put(key, answer)
            return answer
        finally:
            with self._lock:
                del self._asked[key]
            own.ended.set()

    def put(self, key: K, answer: V) -> None:
        """Cache an answer that was received otherwise."""
        with self._lock:
            self.found[key] = answer
            self._refused.pop(key, None)

    def _raise_refusal(self, key: K) -> None:
        refusal = self._refused.get(key)
        if refusal is not None and refusal.until_ms > self._clock.monotonic_ms():
            raise refusal.error(refusal.text)

    def _keep_refusal(self, key: K, error: Exception) -> None:
        with self._lock:
            before = self._refused.pop(key, None)
            lasts_ms = REFUSED_FOR_MS if before is None else min(2 * before.lasts_ms, REFUSED_FOR_MOST_MS)
            if len(self._refused) >= MOST_REFUSALS:
                del self._refused[next(iter(self._refused))]
            until_ms = self._clock.monotonic_ms() + lasts_ms
            self._refused[key] = _Refusal(type(error), str(error), until_ms, lasts_ms)
