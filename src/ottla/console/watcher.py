"""Facts of the cluster, read in the background while somebody looks at a page.

A page never waits for a read but for the very first one: it gets what was read last, and how old that is. Nobody
looking means nothing asked. A cluster that does not answer leaves the last facts in place, and says so.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.admin.doctor import Limits
from ottla.admin.facts import ClusterFacts
from ottla.admin.rates import Rates, rates_between
from ottla.errors import BrokerUnavailable, InputError, OttlaError
from ottla.raising import again

WATCHED_S: Final = 20.0
"""How long reading goes on after the last time somebody asked."""

MOST_SHARE: Final = 0.03
"""Of the time that looking may take: those who work with the cluster must not feel that somebody looks."""

MOST_SAMPLES: Final = 120
_LONG_MS: Final = Limits().forecast_ms
_RATES_OVER: Final = 5
"""Samples that a rate is taken over: one alone jumps."""


def pause_after(took_s: float, *, every_s: float, most_s: float = math.inf) -> float:
    """How long to wait after work that took so long, in seconds: at least `every_s`, at most `most_s`, and so that the
    work has its share of the time at most."""
    return min(most_s, max(every_s, took_s / MOST_SHARE - took_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What is kept of a sample when its facts are dropped. Bytes per second, by broker and by topic."""

    at_ms: int
    by_broker: dict[int, float]
    by_topic: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known now. `problem` is why the last read failed, None if it did not.

    `before` is a few reads older than `facts`; `long_before` is old enough to say when a disk is full.
    """

    facts: ClusterFacts
    before: ClusterFacts | None
    long_before: ClusterFacts | None
    rates: Rates | None
    samples: tuple[Sample, ...]
    age_ms: int
    problem: str | None


class Watcher:
    """`seen()` from any thread; `close()` ends the background thread."""

    def __init__(
        self,
        read: Callable[[], ClusterFacts],
        *,
        every_s: float,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        first_s: float = 15.0,
    ) -> None:
        """`first_s`: how long a page waits for the first facts."""
        self._read, self._every_s, self._first_s = read, every_s, first_s
        self._now_ms, self._monotonic = now_ms, monotonic
        self._changed = threading.Condition()
        self._facts: deque[ClusterFacts] = deque(maxlen=_RATES_OVER)
        self._older: deque[ClusterFacts] = deque()
        """The first of them is `long_before` when it is old enough; each is as much younger than the one before it."""
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._rates: Rates | None = None
        self._problem: OttlaError | None = None
        self._watched_until = 0.0
        self._is_closed = self._is_urgent = self._is_reading = False
        self._reads = 0
        self._thread = threading.Thread(target=self._run, name="ottla-console-watcher", daemon=True)
        self._thread.start()

    def seen(self, *, fresh: bool = False) -> Seen:
        """What is known. Raises what the first read raised while there is nothing. `fresh`: after one more read."""
        with self._changed:
            wanted = 0
            if fresh or not self._facts:
                wanted = self._reads + (2 if fresh and self._is_reading else 1)  # what was begun before may be old
                self._is_urgent = True
            self._watched_until = self._monotonic() + WATCHED_S
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._reads >= wanted or self._is_closed, timeout=self._first_s)
            if not self._facts:
                if self._problem is not None:
                    raise again(self._problem)
                raise BrokerUnavailable(f"no facts of the cluster within {self._first_s:g} s")
            now = self._facts[-1]
            return Seen(
                facts=now,
                before=self._facts[0] if len(self._facts) > 1 else None,
                long_before=self._older[0] if now.at_ms - self._older[0].at_ms >= _LONG_MS else None,
                rates=self._rates,
                samples=tuple(self._samples),
                age_ms=max(0, self._now_ms() - now.at_ms),
                problem=None if self._problem is None else str(self._problem),
            )

    def close(self) -> None:
        """End the thread. A read that is under way may outlive this for as long as it takes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._monotonic() < self._watched_until)
                if self._is_closed:
                    return
                self._is_urgent, self._is_reading = False, True
            began = self._monotonic()
            self._look()
            took = self._monotonic() - began
            with self._changed:
                pause_s = pause_after(took, every_s=self._every_s)
                self._changed.wait_for(lambda: self._is_closed or self._is_urgent, timeout=pause_s)

    def _look(self) -> None:
        facts: ClusterFacts | None = None
        problem: OttlaError | None = None
        try:
            facts = self._read()
        except OttlaError as error:
            problem = error
        with self._changed:
            if facts is not None:
                self._take(facts)
            self._problem = problem
            self._reads += 1
            self._is_reading = False
            self._changed.notify_all()

    def _take(self, facts: ClusterFacts) -> None:
        if self._facts and self._facts[-1].cluster_id != facts.cluster_id:
            self._facts.clear()  # another cluster is at the address now
            self._older.clear()
            self._samples.clear()
        self._facts.append(facts)
        self._remember(facts)
        self._rates = None
        if len(self._facts) > 1:
            try:
                self._rates = rates_between(self._facts[0], facts)
            except InputError:  # the clock was set back
                self._facts.clear()
                self._facts.append(facts)
                self._older.clear()
                self._remember(facts)
        if self._rates is not None:
            by_topic: dict[str, float] = {}
            for place, rate in self._rates.bytes_in.items():
                by_topic[place.topic] = by_topic.get(place.topic, 0.0) + rate
            by_broker = self._rates.leader_bytes_in(facts)
            self._samples.append(Sample(at_ms=facts.at_ms, by_broker=by_broker, by_topic=by_topic))

    def _remember(self, facts: ClusterFacts) -> None:
        if not self._older or facts.at_ms - self._older[-1].at_ms >= _LONG_MS:
            self._older.append(facts)
        while len(self._older) > 1 and facts.at_ms - self._older[1].at_ms >= _LONG_MS:
            self._older.popleft()
