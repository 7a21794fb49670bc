"""What plans of `ottla plan` are worth: quality, bytes and time over random clusters, and a plan that is carried out.

    python benchmarks/planner.py             100 clusters, the two large ones, and a run; some minutes
    python benchmarks/planner.py --quick     20 clusters, and a run

Beside each stands what kafka-reassign-partitions' `--generate` proposes: everything anew, in stripes over racks and
brokers (a contract test compares it with the tool). What no plan can stay below: the level that `goals` computes, the
bytes above the limits, and for leaders the optimum of a linear program, where scipy is installed.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from results import FOLDER, Results

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kit"))

from kafka_placement import placed_anew
from placement_bounds import leaders_at_least, least_bytes
from placement_models import grown_model
from plan_runs import PARTS, fill, filled_topic

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.executor import Executor, RunOptions
from ottla.admin.placement.journal import Journal
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import Move, MovePlan, fullest, leader_skew
from ottla.admin.placement.move_progress import MoveProgress
from ottla.admin.placement.placement_state import DEFAULT_GOALS
from ottla.admin.placement.plan_judgement import plan_of
from ottla.admin.placement.planners import add_brokers, rebalance, remove_brokers

EACH = "fullest broker, by the share of bytes that is copied"
"""One result for each cluster and method: the plot's points."""
THEIRS = "kafka-reassign-partitions --generate"
_RECORDS = 45_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 clusters")
    parser.add_argument("--results", type=Path, default=FOLDER)
    options = parser.parse_args()
    results = Results("planner", options.results, is_quick=options.quick)
    seen = [measured(seed) for seed in range(20 if options.quick else 100)]
    columns: list[tuple[str, str, int, float | None]] = [
        ("fullest broker, over what can be reached", "x", 0, 1.15),
        ("bytes copied, over the least", "x", 1, 1.5),
        ("leaders, over the optimum of a linear program", "x", 2, 1.10),
        ("share of all bytes that is copied", "x", 4, None),
        ("time of a plan", "s", 3, None),
    ]
    for what, unit, at, goal in columns:
        values = [value for each in seen if (value := each[at]) is not None]
        results.add(what, "ottla", values, unit, goal=goal)
        print(spread(what, values))
    for what, at in (("share of all bytes that is copied", 5), ("fullest broker, over what can be reached", 6)):
        results.add(what, THEIRS, [each[at] or 0.0 for each in seen], "x")
        print(spread(f"{what}, {THEIRS}", [each[at] or 0.0 for each in seen]))
    for each in seen:
        results.add(EACH, "ottla", [each[0]], "x", x=each[4])
        results.add(EACH, THEIRS, [each[6]], "x", x=each[5])
    within = sum(each[0] <= 1.0501 for each in seen)
    results.add("clusters within 1.05 of what can be reached", "ottla", [100 * within / len(seen)], "%", goal=95)
    print(f"fullest within 1.05 x of what can be reached: {within} of {len(seen)}")
    for brokers, partitions, goal in () if options.quick else ((30, 5_000, 0.5), (100, 20_000, 5.0)):
        cluster = grown_model(1, brokers=brokers, partitions=partitions, joined=brokers // 5)
        plan, seconds = timed(rebalance, cluster)
        results.add(f"plan of {partitions:,} partitions on {brokers} brokers", "ottla", [seconds], "s", goal=goal)
        print(
            f"{partitions:,} partitions on {brokers} + {brokers // 5} brokers: {seconds:.2f} s, fullest"
            f" {fullest(plan.before):.2f} -> {fullest(plan.after):.3f} (reachable {plan.floor.level:.3f}), leaders"
            f" {leader_skew(plan.before):.2f} -> {leader_skew(plan.after):.2f}, {len(plan.moves):,} changes"
        )
    carry_out(results, throttle=10_000_000)
    if not options.quick:
        ten_thousand(results)
    results.close()


def carry_out(results: Results, *, throttle: int) -> None:
    """A fourth broker joins a cluster, and a plan fills it: are the planned bytes moved, and is the throttle kept?"""
    with (
        EmbeddedCluster(brokers=3, log_dir_bytes=[4 << 30]) as cluster,
        Admin(cluster.bootstrap_servers, timeout_s=60) as admin,
        TemporaryDirectory() as folder,
    ):
        filled_topic(admin, cluster.bootstrap_servers, "filled", partitions=12, records=_RECORDS // 12)
        joined = cluster.add_broker()
        plan = add_brokers(model_of(admin.facts(PARTS)), [joined])
        began = time.monotonic()
        last = began
        copied = 0

        def report(progress: MoveProgress) -> None:
            nonlocal last, copied
            if progress.copied > copied:
                last, copied = time.monotonic(), progress.copied

        with Journal(Path(folder) / "journal") as book:
            options = RunOptions(throttle=throttle, poll_s=0.1)
            outcome = Executor(admin.carry_out, plan.moves, book, options, report=report).run()
        new = {(move.topic, move.partition, broker) for move in plan.moves for broker in move.adding}
        held = sum(
            replica.bytes
            for broker, _, replica in admin.facts(PARTS).replicas()
            if (replica.topic, replica.partition, broker.id) in new
        )
    if not outcome.is_complete:
        results.problem("a plan that is carried out", "ottla", f"{len(outcome.not_done)} moves are missing")
        return
    results.add("bytes moved by a run, over the plan's", "ottla", [held / plan.bytes_copied], "x", goal=1.0)
    busiest = max(copied_by_broker(plan.moves).values()) / (last - began)
    results.add("rate of a run's busiest broker, over its throttle", "ottla", [busiest / throttle], "x", goal=1.1)
    print(
        f"a run: the plan has {plan.bytes_copied:,} bytes, {held:,} arrived in {last - began:.1f} s; the busiest broker"
        f" copied {busiest / throttle:.2f} of the throttle of {throttle:,} bytes/s"
    )


def ten_thousand(results: Results) -> None:
    """A fourth broker joins a cluster of 10,000 partitions of one record each: how long each step takes."""
    topics = {f"many-{number}": TopicSpec(partitions=1_000, replication_factor=1) for number in range(10)}
    with (
        EmbeddedCluster(brokers=3, log_dir_bytes=[4 << 30]) as cluster,
        Admin(cluster.bootstrap_servers, timeout_s=120) as admin,
        TemporaryDirectory() as folder,
    ):
        admin.create_topics(topics)
        for topic in topics:
            fill(cluster.bootstrap_servers, topic, partitions=1_000, records=1, size=2_000)
        joined = cluster.add_broker()
        began = time.perf_counter()
        facts = admin.facts(PARTS)
        read = time.perf_counter()
        plan = add_brokers(model_of(facts), [joined])
        planned = time.perf_counter()
        with Journal(Path(folder) / "journal") as book:
            outcome = Executor(admin.carry_out, plan.moves, book, RunOptions(poll_s=0.5)).run()
        moved = time.perf_counter()
    if not outcome.is_complete:
        results.problem("10,000 partitions", "ottla", f"{len(outcome.not_done)} moves are missing")
        return
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    what = "10,000 partitions on an embedded cluster"
    for step, seconds in (("read", read - began), ("planned", planned - read), ("moved", moved - planned)):
        results.add(f"{what}: {step}", "ottla", [seconds], "s")
    results.add(f"{what}: memory of cluster and tool", "ottla", [memory_mb], "MB")
    print(
        f"{what}: read in {read - began:.1f} s, planned in {planned - read:.1f} s, {len(plan.moves):,} moved in"
        f" {moved - planned:.1f} s, {memory_mb:,.0f} MB"
    )


def copied_by_broker(moves: Sequence[Move]) -> Counter[int]:
    """The most that each broker sends as a leader, or receives."""
    sent, received = Counter[int](), Counter[int]()
    for move in moves:
        sent[move.old[0]] += move.copied
        for broker in move.adding:
            received[broker] += move.bytes
    return sent | received


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


def timed(planner: Callable[[Model], MovePlan], cluster: Model) -> tuple[MovePlan, float]:
    began = time.perf_counter()
    return planner(cluster), time.perf_counter() - began


def spread(what: str, values: Sequence[float]) -> str:
    if not values:
        return f"{what}: not measured"
    ordered = sorted(values)
    ninth = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
    return f"{what}: median {statistics.median(ordered):.3f}, p90 {ninth:.3f}, worst {ordered[-1]:.3f} ({len(ordered)})"


if __name__ == "__main__":
    main()
