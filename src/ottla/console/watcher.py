"""Cluster facts, read in the background while a page is open.

A page never waits for a read but for the very first one: it gets what was read last, and how old that is. Nobody
looking means nothing asked. A cluster that does not answer, or answers late, leaves the last facts in place, and says
so: facts that are older than `STALE_MS` are never shown as if they were of now. When what is read: `rhythm`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.admin.doctor import Limits
from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.admin.facts.rates import Rates, rates_between
from ottla.console.rhythm import RefreshPart, Rhythm, is_incident, with_figures
from ottla.errors import BrokerUnavailable, InputError, OttlaError
from ottla.raising import again

WATCHED_S: Final = 20.0
"""Reading continues for this many seconds after the last request."""

STALE_MS: Final = 15_000
"""Facts of this age are a problem."""
MOST_SAMPLES: Final = 120
_LONG_MS: Final = Limits().forecast_ms
_RATES_OVER: Final = 5
"""Samples that a rate is taken over: one alone jumps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Figures kept of a sample when its facts are dropped. Bytes per second, by broker and by topic."""

    at_ms: int
    by_broker: dict[int, float]
    by_topic: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFacts:
    """What is known now. `problem` is why the last read failed, or that facts are old; None if neither is so.

    `age_ms` is that of brokers, leaders and replicas, `figures_age_ms` that of offsets and sizes. `before` is a few
    reads older than `facts`; `long_before` is old enough to say when a disk is full.
    """

    facts: ClusterFacts
    before: ClusterFacts | None
    long_before: ClusterFacts | None
    rates: Rates | None
    samples: tuple[Sample, ...]
    age_ms: int
    figures_age_ms: int
    problem: str | None


class Watcher:
    """`seen()` from any thread; `close()` ends the background thread."""

    def __init__(
        self,
        read: Callable[[], ClusterFacts],
        read_outline: Callable[[], ClusterFacts],
        *,
        every_s: float,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        first_s: float = 15.0,
    ) -> None:
        """Create a watcher. `read` reads everything, `read_outline` all but figures. `first_s`: how long a page waits
        for the first."""
        self._read, self._read_outline, self._first_s = read, read_outline, first_s
        self._rhythm = Rhythm(every_s=every_s)
        self._now_ms, self._monotonic = now_ms, monotonic
        self._changed = threading.Condition()
        self._facts: deque[ClusterFacts] = deque(maxlen=_RATES_OVER)
        """With figures."""
        self._now: ClusterFacts | None = None
        """State of the cluster, with the last figures."""
        self._stands_at_ms = 0
        self._older: deque[ClusterFacts] = deque()
        """Samples of the past. The oldest is `long_before` once it is old enough; the ages of the others are spread
        evenly."""
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._rates: Rates | None = None
        self._problem: OttlaError | None = None
        self._watched_until = 0.0
        self._is_closed = self._is_urgent = self._is_reading = False
        self._reads = 0
        self._thread = threading.Thread(target=self._run, name="ottla-console-watcher", daemon=True)
        self._thread.start()

    def seen(self, *, fresh: bool = False) -> WatchedFacts:
        """Return the last facts. Raises the first read's error while there are none. `fresh`: after one more read."""
        with self._changed:
            wanted = 0
            if fresh or not self._facts:
                wanted = self._reads + (2 if fresh and self._is_reading else 1)  # what was begun before may be old
                self._is_urgent = True
            self._watched_until = self._monotonic() + WATCHED_S
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._reads >= wanted or self._is_closed, timeout=self._first_s)
            if self._now is None:
                if self._problem is not None:
                    raise again(self._problem)
                raise BrokerUnavailable(f"no facts of the cluster within {self._first_s:g} s")
            now_ms, figures_ms = self._now_ms(), self._facts[-1].at_ms
            age_ms = max(0, now_ms - self._stands_at_ms)
            return WatchedFacts(
                facts=self._now,
                before=self._facts[0] if len(self._facts) > 1 else None,
                long_before=self._older[0] if figures_ms - self._older[0].at_ms >= _LONG_MS else None,
                rates=self._rates,
                samples=tuple(self._samples),
                age_ms=age_ms,
                figures_age_ms=max(0, now_ms - figures_ms),
                problem=_problem(self._problem, age_ms),
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
                read, due_s = self._rhythm.next()
                if not self._is_urgent and self._changed.wait_for(
                    lambda: self._is_closed or self._is_urgent, timeout=max(0.0, due_s - self._monotonic())
                ):
                    continue
                if self._is_urgent or not self._facts:
                    read = RefreshPart.EVERYTHING
                self._is_urgent, self._is_reading = False, read is RefreshPart.EVERYTHING
            self._look(read)

    def _look(self, read: RefreshPart) -> None:
        facts: ClusterFacts | None = None
        problem: OttlaError | None = None
        began_s = self._monotonic()
        try:
            facts = self._read() if read is RefreshPart.EVERYTHING else self._read_outline()
        except OttlaError as error:
            problem = error
        ended_s = self._monotonic()
        is_trouble = problem is not None or (facts is not None and is_incident(facts))
        now = facts
        if facts is not None and read is RefreshPart.OUTLINE:
            last = self._facts[-1]
            now = with_figures(facts, last) if facts.cluster_id == last.cluster_id else None
        with self._changed:
            if facts is not None and read is RefreshPart.EVERYTHING:
                self._take(facts)
            if facts is not None and now is not None:
                self._now, self._stands_at_ms = now, facts.at_ms
            elif facts is not None:  # another cluster is at the address now
                self._is_urgent = True
            self._rhythm.done(read, took_s=ended_s - began_s, now_s=ended_s, is_incident=is_trouble)
            self._problem = problem
            if read is RefreshPart.EVERYTHING:
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


def _problem(failed: OttlaError | None, age_ms: int) -> str | None:
    """Return the problem with the facts: a failed last read, else their age."""
    if failed is not None:
        return str(failed)
    if age_ms > STALE_MS:
        return "the cluster has not been read again since"
    return None
