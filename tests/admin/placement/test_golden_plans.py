"""Whole plans as they are told, so that a change of the search shows itself."""

from __future__ import annotations

from placement_models import broker, model, partition

from ottla.admin.placement.move_plan import MovePlan, fullest
from ottla.admin.placement.planners import add_brokers, balance_leaders, rebalance, remove_brokers, spread_dirs

GB = 1 << 30
RACKS = ("a", "b", "c")


def told(plan: MovePlan) -> list[str]:
    lines = [f"fullest {fullest(plan.before):.2f} → {fullest(plan.after):.2f} of {plan.floor.level:.2f}"]
    for move in plan.moves:
        disks = "".join(f", broker {each.broker}: {each.source} → {each.target}" for each in move.disk_moves)
        old, new = ",".join(map(str, move.old)), ",".join(map(str, move.new))
        change = f"{old} → {new}" if move.old != move.new else old
        lines.append(f"{move.batch}: {move.place} {move.bytes // GB} GiB {change}{disks}: {move.why}")
    return lines


def test_the_plan_for_a_skewed_cluster_of_three_racks() -> None:
    brokers = [broker(number, rack=RACKS[number % 3]) for number in range(1, 7)]
    sizes = [90, 40, 20, 10, 8, 5]
    partitions = [partition("orders", at, size * GB, [1, 2, 3], rate=size) for at, size in enumerate(sizes)]
    partitions += [partition("clicks", at, 15 * GB, [4, 5, 6], rate=15) for at in range(4)]
    assert told(rebalance(model(brokers, partitions, rates=True))) == [
        "fullest 1.48 → 1.03 of 1.00",
        "1: orders-1 40 GiB 1,2,3 → 5,4,6: broker 1 is 48% above its fair share",
        "2: orders-4 8 GiB 1,2,3 → 4,5,6: broker 1 is 48% above its fair share",
        "2: orders-5 5 GiB 1,2,3 → 4,5,6: broker 1 is 48% above its fair share",
        "3: orders-0 90 GiB 1,2,3 → 2,1,3: broker 1 leads 4.5 × the mean",
    ]


def test_the_plan_for_a_broker_that_joins() -> None:
    brokers = [broker(number) for number in (1, 2, 3, 4)]
    partitions = [partition("t", at, 10 * GB, [1 + at % 3, 1 + (at + 1) % 3]) for at in range(6)]
    assert told(add_brokers(model(brokers, partitions), [4])) == [
        "fullest 1.33 → 1.00 of 1.00",
        "1: t-0 10 GiB 1,2 → 2,4: broker 1 is 33% above its fair share",
        "1: t-1 10 GiB 2,3 → 4,3: broker 2 is 33% above its fair share",
        "2: t-2 10 GiB 3,1 → 4,1: broker 3 is 33% above its fair share",
    ]


def test_the_plan_for_a_broker_that_goes() -> None:
    brokers = [broker(number) for number in (1, 2, 3)]
    partitions = [partition("t", at, (at + 1) * GB, [1 + at % 3, 1 + (at + 1) % 3]) for at in range(4)]
    assert told(remove_brokers(model(brokers, partitions), [3])) == [
        "fullest 0.80 → 1.00 of 1.00",
        "1: t-2 3 GiB 3,1 → 2,1: broker 3 is to be emptied",
        "1: t-1 2 GiB 2,3 → 2,1: broker 3 is to be emptied",
    ]


def test_the_plan_for_leaders_that_one_broker_has_all_of() -> None:
    brokers = [broker(number) for number in (1, 2, 3)]
    partitions = [partition("t", at, GB, [1, 2, 3], rate=10.0 + at) for at in range(6)]
    assert told(balance_leaders(model(brokers, partitions, rates=True))) == [
        "fullest 1.00 → 1.00 of 1.00",
        "1: t-0 1 GiB 1,2,3 → 2,1,3: broker 1 leads 3.0 × the mean",
        "1: t-2 1 GiB 1,2,3 → 3,2,1: broker 1 leads 3.0 × the mean",
        "1: t-4 1 GiB 1,2,3 → 3,2,1: broker 1 leads 3.0 × the mean",
        "1: t-5 1 GiB 1,2,3 → 2,1,3: broker 1 leads 3.0 × the mean",
    ]


def test_the_plan_for_a_disk_that_was_added() -> None:
    partitions = [partition("t", at, (6 - at) * GB, [1]) for at in range(6)]
    assert told(spread_dirs(model([broker(1, disks=[1 << 40, 1 << 40])], partitions))) == [
        "fullest 1.00 → 1.00 of 1.00",
        "1: t-0 6 GiB 1, broker 1: /d0 → /d1: /d0 of broker 1 is fuller than its other disks",
        "1: t-2 4 GiB 1, broker 1: /d0 → /d1: /d0 of broker 1 is fuller than its other disks",
    ]
