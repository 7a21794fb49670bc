"""Throttles of a run: which settings, and how they were before. Pure.

`leader.` and `follower.replication.throttled.replicas` of a topic list exactly what moves; the rates go to the brokers
concerned (KIP-73). Only what was set by this run is taken away, and what was there before comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ottla.admin.placement.move_plan import Move
from ottla.errors import InputError

LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

FREE_BYTES: Final = 1 << 30
"""Above it a run needs a throttle, or an explicit choice of none."""
_MARGIN: Final = 1.2
_LEAST: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSetting:
    """One setting of a topic or broker: what it was set to before (None: not set here), and what the run sets."""

    kind: str
    resource: str
    name: str
    old: str | None
    new: str


def wanted_settings(moves: Iterable[Move], rate: int) -> dict[tuple[str, str, str], str]:
    """Return (topic or broker, its name, setting) → value, for moves that copy something at a rate in bytes per
    second."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for move in moves:
        if move.adding:
            leaders.setdefault(move.topic, []).extend(f"{move.partition}:{broker}" for broker in move.old)
            followers.setdefault(move.topic, []).extend(f"{move.partition}:{broker}" for broker in move.adding)
            brokers |= {*move.old, *move.adding}
    found = {("topic", topic, LEADERS): ",".join(each) for topic, each in leaders.items()}
    found |= {("topic", topic, FOLLOWERS): ",".join(each) for topic, each in followers.items()}
    found |= {("broker", str(broker), name): str(rate) for broker in sorted(brokers) for name in RATES}
    return found


def merged(name: str, old: str | None, wanted: str) -> str:
    """Return the throttles to set: an entry `*` stays, entries of others are kept, and rates are replaced."""
    if name in RATES or not old:
        return wanted
    return old if old.strip() == "*" else ",".join(dict.fromkeys([*old.split(","), *wanted.split(",")]))


def check_rate(rate: int, moves: Iterable[Move]) -> None:
    """Raise InputError for a throttle below which a move never ends: its partitions grow as fast as they are copied."""
    arriving: dict[int, float] = {}
    for move in moves:
        for broker in move.adding:
            arriving[broker] = arriving.get(broker, 0.0) + move.rate
    worst = max(arriving, key=lambda broker: arriving[broker], default=None)
    if rate <= 0:
        raise InputError(f"throttle: found {rate}, wanted more than 0 bytes per second")
    if worst is not None and rate < arriving[worst] * _MARGIN:
        raise InputError(
            f"throttle: found {rate:,} bytes/s, wanted at least {arriving[worst] * _MARGIN:,.0f}: producers write"
            f" {arriving[worst]:,.0f} bytes/s to what moves to broker {worst}, so the move would never end"
        )


def suggested_rate(moves: Iterable[Move]) -> int:
    """Return twice the rate of writes to what moves, at least 10 MB/s."""
    return max(_LEAST, int(2 * sum(move.rate * len(move.adding) for move in moves)))


def to_journal(settings: Iterable[ThrottleSetting]) -> list[dict[str, Any]]:
    """Return settings as a line of the journal has them."""
    return [asdict(each) for each in settings]


def from_journal(line: Mapping[str, Any]) -> list[ThrottleSetting]:
    """Return settings out of a line of the journal."""
    return [ThrottleSetting(**each) for each in line["settings"]]
