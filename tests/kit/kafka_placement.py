"""Where kafka-reassign-partitions' `--generate` puts replicas: everything anew, in stripes over racks and brokers.

tests/contract/test_contract_of_generated_plans.py compares it with the tool (Kafka 4).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.move_plan import Move

T = TypeVar("T")


def placed_anew(cluster: Model, dice: random.Random, removed: Collection[int]) -> tuple[Move, ...]:
    """What moves when each topic is placed anew. The tool takes no notice of bytes, nor of where replicas are."""
    racks = {each.id: each.rack or "" for each in cluster.brokers if each.id not in removed}
    partitions = Counter(each.topic for each in cluster.partitions)
    factors = {each.topic: len(each.replicas) for each in cluster.partitions}
    new = {topic: placed(count, factors[topic], racks, dice) for topic, count in partitions.items()}
    return tuple(
        Move(
            topic=each.topic,
            partition=each.partition,
            bytes=each.size,
            old=each.replicas,
            new=new[each.topic][each.partition],
            log_dirs=("any",) * len(each.replicas),
        )
        for each in cluster.partitions
        if new[each.topic][each.partition] != each.replicas
    )


def placed(partitions: int, factor: int, racks: Mapping[int, str], dice: random.Random) -> list[tuple[int, ...]]:
    """The replicas of a topic's partitions. `racks`: broker → its rack."""
    lists = by_rack(racks)
    order = [rotated(held, dice.randrange(len(held))) for held in rotated(lists, dice.randrange(len(lists)))]
    found: list[tuple[int, ...]] = []
    while len(found) < partitions:
        found += stripe(order, factor)
        for held in order:
            dice.shuffle(held)
        dice.shuffle(order)
    return found[:partitions]


def by_rack(racks: Mapping[int, str]) -> list[list[int]]:
    """The brokers of each rack."""
    return [sorted(broker for broker, rack in racks.items() if rack == each) for each in sorted(set(racks.values()))]


def rotated(values: Sequence[T], by: int) -> list[T]:
    """The same, beginning with another one."""
    return [*values[by:], *values[:by]]


def stripe(lists: Sequence[Sequence[int]], factor: int) -> list[tuple[int, ...]]:
    """As many partitions as there are brokers. Each begins a rack further, and in each rack a broker further."""
    begun = [0] * len(lists)
    found = []
    for number in range(sum(map(len, lists))):
        used = [0] * len(lists)
        chosen: list[int] = []
        at = number
        while len(chosen) < factor:
            rack = at % len(lists)
            at += 1
            if used[rack] < len(lists[rack]):
                chosen.append(lists[rack][(begun[rack] + used[rack]) % len(lists[rack])])
                used[rack] += 1
        begun = [before + bool(now) for before, now in zip(begun, used, strict=True)]
        found.append(tuple(chosen))
    return found
