"""Progress of a run, in total and by receiving broker. Rates are computed from the latest samples."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ottla.admin.placement.deciding import MoveState, Status

_LOOKS = 16
"""Number of samples whose first and last give a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProgress:
    """Progress of one receiving broker. `moves` counts its replicas in progress; `rate` and `left_s` are as in
    `MoveProgress`."""

    broker: int
    moves: int
    copied: int
    bytes: int
    rate: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """How far a run is. `rate` is bytes per second, None while unknown; `left_s` are seconds.

    `brokers` are those that receive replicas, by id.
    """

    done: int
    moves: int
    copied: int
    bytes: int
    rate: float | None
    left_s: float | None
    statuses: tuple[Status, ...]
    problem: str = ""
    brokers: tuple[BrokerProgress, ...] = ()


def by_broker(statuses: Iterable[Status]) -> tuple[BrokerProgress, ...]:
    """Return the bytes that each broker has received and will receive, from one sample. Rates need two samples."""
    moves, copied, wanted = Counter[int](), Counter[int](), Counter[int]()
    for status in statuses:
        for broker in status.move.adding:
            moves[broker] += status.state is MoveState.MOVING
            copied[broker] += status.copied_to.get(broker, 0)
            wanted[broker] += status.move.bytes
    return tuple(
        BrokerProgress(broker=broker, moves=moves[broker], copied=copied[broker], bytes=wanted[broker])
        for broker in sorted(wanted)
    )


class Meter:
    """Makes progress of look after look."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Mapping[int, int]]] = deque(maxlen=_LOOKS)

    def progress(self, statuses: tuple[Status, ...], *, now: float, problem: str = "") -> MoveProgress:
        """Return how far these are. `now` in seconds, of any clock that does not go back."""
        brokers = by_broker(statuses)
        self._looks.append((now, {each.broker: each.copied for each in brokers}))
        copied, whole = sum(each.copied for each in brokers), sum(each.bytes for each in brokers)
        rate = self._rate([each.broker for each in brokers])
        return MoveProgress(
            done=sum(status.state is MoveState.DONE for status in statuses),
            moves=len(statuses),
            copied=copied,
            bytes=whole,
            rate=rate,
            left_s=(whole - copied) / rate if rate else None,
            statuses=statuses,
            problem=problem,
            brokers=tuple(self._with_rate(each) for each in brokers),
        )

    def _with_rate(self, each: BrokerProgress) -> BrokerProgress:
        rate = self._rate([each.broker])
        return replace(each, rate=rate, left_s=(each.bytes - each.copied) / rate if rate else None)

    def _rate(self, brokers: Iterable[int]) -> float | None:
        """Return bytes per second into these together."""
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        if last_at <= first_at:
            return None
        return sum(last.get(broker, 0) - first.get(broker, 0) for broker in brokers) / (last_at - first_at)
