"""How a goal is judged: a figure of one run against another of the same run, or against a limit.

What was not measured is neither met nor missed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from results import Part, Result

Parts = Mapping[str, Part]
COSTS = frozenset({"µs", "µs per record", "instructions", "ms", "s", "MB", "x FlowLimits", "records too old"})
"""Units of which less is better; the others are rates and shares."""
NAMES = {"ottla": "Ottla", "mock": "librdkafka's mock", "kfake": "kfake", "kafka": "Apache Kafka"}


class State(Enum):
    """Whether a goal is met, not met or not measured."""

    MET = "met"
    NOT_MET = "**not met**"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figure of a goal as text, and the state of the goal."""

    words: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One row of the table of goals."""

    area: str
    what: str
    wanted: str
    measure: Callable[[Parts], Measured]
    why: str = ""


NOT_MEASURED = Measured(words="–", state=State.NOT_MEASURED)


def ratio(part: str, ours: tuple[str, str], peer: tuple[str, str], at_least: float) -> Callable[[Parts], Measured]:
    """Return a judge of the ratio of two figures, each named by (what, contender): the median of the rounds' ratios."""

    def measure(parts: Parts) -> Measured:
        mine, theirs = _get(parts, part, ours), _get(parts, part, peer)
        if mine is None or theirs is None:
            return NOT_MEASURED
        return _verdict(f"{ratio_of(mine, theirs):.2f}", ratio_of(mine, theirs) >= at_least)

    return measure


def advantage(part: str, what: str, peer: str, at_least: float) -> Callable[[Parts], Measured]:
    """Return a judge of how many times better Ottla's figure is than the peer's: a higher rate, or a lower cost."""

    def measure(parts: Parts) -> Measured:
        ours, theirs = _get(parts, part, (what, "ottla")), _get(parts, part, (what, peer))
        if ours is None or theirs is None:
            return NOT_MEASURED
        found = advantage_of(ours, theirs)
        return _verdict(f"{found:.2f}", found >= at_least)

    return measure


def at_least(part: str, what: str, contender: str, least: float, unit: str) -> Callable[[Parts], Measured]:
    def measure(parts: Parts) -> Measured:
        found = _get(parts, part, (what, contender))
        if found is None:
            return NOT_MEASURED
        return _verdict(f"{number(found.value)} {unit}".rstrip(), found.value >= least)

    return measure


def at_most(part: str, what: str, contender: str, limit: float, unit: str) -> Callable[[Parts], Measured]:
    def measure(parts: Parts) -> Measured:
        found = _get(parts, part, (what, contender))
        if found is None:
            return NOT_MEASURED
        return _verdict(f"{number(found.value)} {unit}", found.value <= limit)

    return measure


def ratio_of(ours: Result, peer: Result) -> float:
    """Return the median of the rounds' ratios, or the ratio of the medians if the numbers of rounds differ."""
    if len(ours.runs) == len(peer.runs) and all(peer.runs):
        return statistics.median(mine / theirs for mine, theirs in zip(ours.runs, peer.runs, strict=True))
    return ours.value / peer.value if peer.value else 0.0


def advantage_of(ours: Result, peer: Result) -> float:
    """Return the ratio that is higher when Ottla is better, for rates and costs alike."""
    return ratio_of(peer, ours) if is_cost(ours) else ratio_of(ours, peer)


def is_cost(result: Result) -> bool:
    """Return whether a lower value is better."""
    return result.unit in COSTS


def number(value: float) -> str:
    """Return the value as text, with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _get(parts: Parts, part: str, name: tuple[str, str]) -> Result | None:
    found = parts.get(part)
    return None if found is None else found.get(*name)


def _verdict(words: str, is_met: bool) -> Measured:
    return Measured(words=words, state=State.MET if is_met else State.NOT_MET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A goal of one figure: so many times better than the peer's, or a limit where no peer is named."""

    area: str
    part: str
    what: str
    figure: float
    unit: str
    peer: str = ""
    has_program: bool = True
    """False: nothing measures it yet, and the page says so."""
    why: str = ""

    def goal(self) -> Goal:
        is_cost = self.unit in COSTS
        if self.peer:
            how = f"{self.peer} / Ottla's" if is_cost else f"rate / {self.peer}"
            measure = advantage(self.part, self.what, self.peer, self.figure)
            return Goal(area=self.area, what=f"{self.what}: {how}", wanted=self.limit(), measure=measure, why=self.why)
        judge = at_most if is_cost else at_least
        return Goal(
            area=self.area,
            what=self.what,
            wanted=f"{self.limit()} {self.unit}",
            measure=judge(self.part, self.what, "ottla", self.figure, self.unit),
            why=self.why,
        )

    def limit(self) -> str:
        """`≥ 0.97`"""
        sign = "≤" if self.unit in COSTS and not self.peer else "≥"
        return f"{sign} {self.figure:,g}"
