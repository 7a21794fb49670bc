"""What can be reached at all, computed before anything is searched: asking for more would search for ever.

The *level* of a broker is its bytes by its weight, over the mean of all brokers: 1.2 is a fifth above its fair part.
`reachable` is a level that no placement can stay below: every partition has so many replicas, on different brokers, in
so many racks, and nothing splits a partition. Brokers and racks are filled like vessels of different width that let
pass so much; the largest partitions are pigeons in holes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ottla.admin.placement.cluster_model import Model, ModelPartition

_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A level that no placement can stay below, and why that is so. 1.0 is everything even."""

    level: float
    why: str = ""


def racks_wanted(model: Model, factor: int) -> int:
    """Return in how many racks a partition with so many replicas has to be."""
    return min(factor, max(1, len(model.racks)))


def receivers_of(model: Model, excluded: Collection[int] = ()) -> dict[int, float]:
    """Return the brokers that share the bytes, with their weights."""
    return {
        broker.id: broker.weight
        for broker in model.brokers
        if broker.can_receive and broker.id not in excluded and broker.weight > 0
    }


Amount = Callable[[ModelPartition], float]
"""The balanced quantity of a partition: its bytes or its write rate."""


def by_size(each: ModelPartition) -> float:
    """Return a partition's size in bytes."""
    return each.size


def by_rate(each: ModelPartition) -> float:
    """Return a partition's write rate in bytes per second."""
    return each.rate


def mean_of(
    model: Model, weights: Mapping[int, float], factors: Mapping[str, int] | None = None, amount: Amount = by_size
) -> float:
    """Return the bytes per unit of weight in an even placement. `factors`: new replication factors of topics."""
    total = sum(amount(each) * _factor(each, factors) for each in model.partitions)
    kept = sum(amount(each) for each in model.partitions for broker in each.replicas if _keeps(model, broker))
    return max(0.0, (total - kept) / (sum(weights.values()) or 1.0))


def reachable(
    model: Model, weights: Mapping[int, float], factors: Mapping[str, int] | None = None, amount: Amount = by_size
) -> Floor:
    """Return the floor of a cluster whose bytes, or writes, are shared by these brokers."""
    mean = mean_of(model, weights, factors, amount)
    if mean <= 0 or not weights:
        return Floor(level=1.0)
    floors = [
        Floor(level=1.0),
        _by_racks(model, weights, factors, mean, amount),
        _by_pigeons(model, weights, factors, mean, amount),
    ]
    for broker, held in _fixed(model, amount).items():
        if broker in weights:
            floors.append(
                Floor(level=held / weights[broker] / mean, why=f"partitions that must not move fill broker {broker}")
            )
    return max(floors, key=lambda each: each.level)


def _by_racks(
    model: Model, weights: Mapping[int, float], factors: Mapping[str, int] | None, mean: float, amount: Amount
) -> Floor:
    """Return the bound by racks: each has a least and a most that it must and may hold, and no broker holds a partition
    twice."""
    racks: dict[str, list[int]] = {}
    for broker in weights:
        racks.setdefault(model.rack_of(broker), []).append(broker)
    least: dict[str, float] = dict.fromkeys(racks, 0.0)
    most: dict[str, float] = dict.fromkeys(racks, 0.0)
    every = 0.0
    sizes: dict[int, float] = {}
    for each in model.partitions:
        left = _left(model, each, factors)
        sizes[left] = sizes.get(left, 0.0) + amount(each)
    for factor, size in sizes.items():
        every += size * factor
        apart = min(factor, len(racks))
        top = {rack: min(len(brokers), factor - apart + 1) for rack, brokers in racks.items()}
        for rack in racks:
            others = sum(top[other] for other in racks if other != rack)
            least[rack] += size * max(factor - others, 1 if factor >= len(racks) else 0, 0)
            most[rack] += size * top[rack]
    whole = sum(sizes.values())
    shared = mean * sum(weights.values())

    def fits(level: float) -> str | None:
        held = {
            rack: min(float(most[rack]), sum(min(whole, level * mean * weights[broker]) for broker in brokers))
            for rack, brokers in racks.items()
        }
        tight = [rack for rack in racks if held[rack] < least[rack] * (1 - 1e-12)]
        if tight:
            return min(tight, key=lambda rack: (held[rack] / least[rack], rack))
        return None if sum(held.values()) >= min(shared, every) * (1 - 1e-12) else min(racks, key=lambda r: held[r])

    low, high = 1.0, 2.0
    if fits(low) is None:
        return Floor(level=1.0)
    tight = ""
    while (found := fits(high)) is not None:
        tight, low, high = found, high, high * 2
        if high > 1e6:
            return Floor(level=1.0)  # more replicas than brokers: what broke says so elsewhere
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = fits(middle)
        low, high, tight = (low, middle, tight) if found is None else (middle, high, found)
    count = len(racks[tight]) if tight in racks else 0
    if len(racks) == 1:
        return Floor(level=high, why="a broker holds no partition twice")
    named = f"rack {tight}" if tight else "the brokers without a rack"
    plural = "broker" if count == 1 else "brokers"
    return Floor(level=high, why=f"{named} has {count} {plural} for its share of all replicas")


def _by_pigeons(
    model: Model, weights: Mapping[int, float], factors: Mapping[str, int] | None, mean: float, amount: Amount
) -> Floor:
    """Return the largest partitions: with n brokers, of k·n + 1 replicas some broker has k + 1."""
    order = sorted(weights.values(), reverse=True)
    largest = sorted(model.partitions, key=lambda each: (-amount(each), each.topic, each.partition))[
        : 8 * len(order) + 8
    ]
    best = Floor(level=1.0)
    for each in largest[: len(order)]:
        factor = min(_left(model, each, factors), len(order))
        if factor > 0:
            level = amount(each) / order[factor - 1] / mean
            best = max(best, Floor(level=level, why=f"{each.place} alone is that large"), key=lambda floor: floor.level)
    replicas = [each for each in largest for _ in range(_left(model, each, factors))]
    for count in range(1, 8):
        at = count * len(order)
        if at >= len(replicas):
            break
        level = (count + 1) * amount(replicas[at]) / order[0] / mean
        why = f"{at + 1:,} replicas have at least the bytes of {replicas[at].place}, for {len(order)} brokers"
        best = max(best, Floor(level=level, why=why), key=lambda floor: floor.level)
    return best


def _fixed(model: Model, amount: Amount) -> dict[int, float]:
    held: dict[int, float] = {}
    for each in model.partitions:
        if each.fixed:
            for broker in each.replicas:
                held[broker] = held.get(broker, 0.0) + amount(each)
    return held


def _factor(each: ModelPartition, factors: Mapping[str, int] | None) -> int:
    return factors.get(each.topic, len(each.replicas)) if factors else len(each.replicas)


def _left(model: Model, each: ModelPartition, factors: Mapping[str, int] | None) -> int:
    """Return the number of replicas that brokers with a weight share."""
    return _factor(each, factors) - sum(_keeps(model, broker) for broker in each.replicas)


def _keeps(model: Model, broker: int) -> bool:
    """Return whether the broker may keep its replicas, and gets none: it is fenced, or all of its directories are
    cordoned or offline. No other broker shares their bytes."""
    known = model.by_id.get(broker)
    return known is not None and (known.is_fenced or (known.is_registered and not known.can_receive))
