"""What plans of `ottla plan` are worth: quality, bytes and time, over random clusters as they grow.

    python benchmarks/planner.py             100 clusters, and the two large ones; some minutes
    python benchmarks/planner.py --quick     20 small ones
    python benchmarks/planner.py --plot FILE.png   quality, bytes and time of each cluster, drawn (needs matplotlib)

Beside each stands the method of kafka-reassign-partitions' `--generate`: it places everything anew, by number, from a
random broker on. What no plan can stay below: the level that `goals` computes, the bytes above the limits, and for
leaders the optimum of a linear program, where scipy is installed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from results import Results

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kit"))

from placement_models import grown_model

from ottla.admin.placement.judge import plan_of
from ottla.admin.placement.model import Model
from ottla.admin.placement.plan import Move, Plan, fullest, leader_skew
from ottla.admin.placement.planners import add_brokers, rebalance, remove_brokers
from ottla.admin.placement.state import DEFAULT_GOALS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 small clusters")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw each cluster into this PNG file")
    options = parser.parse_args()
    results = Results("planner", is_quick=options.quick)
    seen = [measured(seed) for seed in range(20 if options.quick else 100)]
    if options.plot is not None:
        draw(seen, options.plot)
    columns: list[tuple[str, str, int, float | None]] = [
        ("fullest broker, over what can be reached", "x", 0, 1.15),
        ("bytes copied, over the least", "x", 1, 1.5),
        ("leaders, over the optimum of a linear program", "x", 2, 1.10),
        ("time", "s", 3, None),
    ]
    for what, unit, at, goal in columns:
        values = [each[at] for each in seen if each[at] is not None]
        results.add(what, "ottla", [value for value in values if value is not None], unit, goal=goal)
        print(spread(what, [value for value in values if value is not None]))
    print(spread("share of all bytes that is copied", [each[4] for each in seen]))
    print(spread("the same by kafka-reassign-partitions --generate", [each[5] for each in seen]))
    print(spread("its fullest broker, over what can be reached", [each[6] for each in seen]))
    results.add("share of bytes copied", "kafka-reassign-partitions", [each[5] for each in seen], "x")
    within = sum(each[0] <= 1.0501 for each in seen)
    print(f"fullest within 1.05 x of what can be reached: {within} of {len(seen)}")
    for brokers, partitions in () if options.quick else ((30, 5_000), (100, 20_000)):
        cluster = grown_model(1, brokers=brokers, partitions=partitions, joined=brokers // 5)
        plan, seconds = timed(rebalance, cluster)
        results.add(f"plan of {partitions:,} partitions on {brokers} brokers", "ottla", [seconds], "s")
        print(
            f"{partitions:,} partitions on {brokers} + {brokers // 5} brokers: {seconds:.2f} s, fullest"
            f" {fullest(plan.before):.2f} -> {fullest(plan.after):.3f} (reachable {plan.floor.level:.3f}), leaders"
            f" {leader_skew(plan.before):.2f} -> {leader_skew(plan.after):.2f}, {len(plan.moves):,} changes"
        )
    results.close()


def draw(seen: Sequence[tuple[float, float | None, float | None, float, float, float, float]], file: Path) -> None:
    """Each cluster as a point: how full the fullest broker is beside what is copied, for both; and the times."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (quality, times) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    quality.scatter([each[4] for each in seen], [each[0] for each in seen], s=14, color="#1f6feb", label="ottla plan")
    theirs = "kafka-reassign-partitions --generate"
    quality.scatter([each[5] for each in seen], [each[6] for each in seen], s=14, color="#b04a4a", label=theirs)
    quality.axhline(1.05, color="#9aa4b2", linewidth=1)
    quality.set(xlabel="share of all bytes that is copied", ylabel="fullest broker, over what can be reached")
    quality.set_yscale("log")
    quality.legend(frameon=False)
    times.hist([each[3] for each in seen], bins=30, color="#1f6feb")
    times.set(xlabel="seconds for a plan", ylabel="clusters")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    plt.close(figure)
    print(f"drawn into {file}")


def measured(seed: int) -> tuple[float, float | None, float | None, float, float, float, float]:
    """One cluster: quality, bytes, leaders, seconds, share copied; and share copied and quality of Kafka's method."""
    dice = random.Random(seed)
    brokers = dice.randint(6, 40)
    cluster = grown_model(
        seed,
        brokers=brokers,
        partitions=dice.randint(20, 120) * brokers,
        factor=dice.choice([2, 3]),
        racks=dice.choice([1, 2, 3, 4]),
        joined=dice.choice([0, 0, 1, 3]),
        mixed=dice.random() < 0.3,
    )
    removed = [1, 2][: dice.choice([0, 0, 1, 2])] if brokers > 8 else []
    empty = [each.id for each in cluster.brokers if each.id > brokers]
    if removed:
        plan, seconds = timed(lambda model: remove_brokers(model, removed), cluster)
    elif empty:
        plan, seconds = timed(lambda model: add_brokers(model, empty), cluster)
    else:
        plan, seconds = timed(rebalance, cluster)
    whole = sum(load.bytes for load in plan.before)
    least = least_bytes(plan)
    optimum = leaders_at_least(cluster, plan)
    most_led = max(load.leader_weight for load in plan.after)
    anew = plan_of(placed_anew(cluster, dice, removed), cluster, goals=DEFAULT_GOALS)
    return (
        fullest(plan.after) / plan.floor.level,
        plan.bytes_copied / least if least > whole / 1_000 else None,
        most_led / optimum if optimum else None,
        seconds,
        plan.bytes_copied / whole,
        anew.bytes_copied / whole,
        fullest(anew.after) / plan.floor.level,
    )


def timed(planner: Callable[[Model], Plan], cluster: Model) -> tuple[Plan, float]:
    began = time.perf_counter()
    return planner(cluster), time.perf_counter() - began


def least_bytes(plan: Plan) -> float:
    """What is on brokers that go, and what is above the limits of the others."""
    allowed = plan.floor.level * (1 + plan.tolerance)
    above = (load.bytes * (1 - allowed / load.level) for load in plan.before if load.level and load.level > allowed)
    return sum(above) + sum(load.bytes for load in plan.before if load.level is None)


def leaders_at_least(cluster: Model, plan: Plan) -> float | None:
    """The least that the busiest leader can have with these replicas, by a linear program. None without scipy."""
    try:
        import numpy as np
        from scipy.optimize import linprog
        from scipy.sparse import coo_array
    except ImportError:
        return None
    new = {move.place: move.new for move in plan.moves}
    rows: list[tuple[int, int, float]] = []
    once: list[tuple[int, int, float]] = []
    index = {broker.id: at for at, broker in enumerate(cluster.brokers)}
    column = 0
    for number, each in enumerate(cluster.partitions):
        for broker in new.get(each.place, each.replicas):
            rows.append((index[broker], column, each.rate))
            once.append((number, column, 1.0))
            column += 1
    rows += [(at, column, -1.0) for at in range(len(index))]
    cost = np.zeros(column + 1)
    cost[column] = 1.0

    def matrix(cells: Sequence[tuple[int, int, float]], height: int) -> object:
        y, x, values = zip(*cells, strict=True)
        return coo_array((values, (y, x)), shape=(height, column + 1))

    found = linprog(
        cost,
        A_ub=matrix(rows, len(index)),
        b_ub=np.zeros(len(index)),
        A_eq=matrix(once, len(cluster.partitions)),
        b_eq=np.ones(len(cluster.partitions)),
    )
    return max(float(found.fun), max(each.rate for each in cluster.partitions)) if found.success else None


def placed_anew(cluster: Model, dice: random.Random, removed: Sequence[int]) -> tuple[Move, ...]:
    """By number: brokers in turn, rack after rack, from a random one on for each topic."""
    by_rack: dict[str, list[int]] = {}
    for broker in cluster.brokers:
        if broker.id not in removed:
            by_rack.setdefault(broker.rack or "", []).append(broker.id)
    lists = list(by_rack.values())
    turn = [held[at] for at in range(max(map(len, lists))) for held in lists if at < len(held)]
    starts: dict[str, tuple[int, int]] = {}
    moves = []
    for each in cluster.partitions:
        start, shift = starts.setdefault(each.topic, (dice.randrange(len(turn)), dice.randrange(len(turn))))
        first = (start + each.partition) % len(turn)
        shift += (start + each.partition) // len(turn)
        chosen = [turn[first]]
        others = [turn[(first + 1 + (shift + step) % (len(turn) - 1)) % len(turn)] for step in range(len(turn) - 1)]
        for other in [*others, *others]:
            taken = {cluster.rack_of(broker) for broker in chosen}
            apart = cluster.rack_of(other) not in taken or len(taken) >= min(len(each.replicas), len(lists))
            if len(chosen) < len(each.replicas) and other not in chosen and apart:
                chosen.append(other)
        if tuple(chosen) != each.replicas:
            moves.append(
                Move(
                    topic=each.topic,
                    partition=each.partition,
                    bytes=each.size,
                    old=each.replicas,
                    new=tuple(chosen),
                    log_dirs=("any",) * len(chosen),
                )
            )
    return tuple(moves)


def spread(what: str, values: Sequence[float]) -> str:
    if not values:
        return f"{what}: not measured"
    ordered = sorted(values)
    ninth = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
    return f"{what}: median {statistics.median(ordered):.3f}, p90 {ninth:.3f}, worst {ordered[-1]:.3f} ({len(ordered)})"


if __name__ == "__main__":
    main()
