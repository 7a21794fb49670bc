"""Makes `docs/benchmarks.md` and its plots from the result files that there are.

    python benchmarks/render.py [--results bench-results] [--docs docs]

What was not measured says so; nothing is carried over from an earlier page. The plots need matplotlib; without it the
page has its tables alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from goals import GOALS, NAMES, Parts, State, number, ratio_of
from results import BUSY, FOLDER, Part, Result, read
from sdk_contenders import GROUPS

PARTS = ("broker", "profile", "cluster", "producer", "sdk", "columnar", "spark", "connector", "growth")
PARTS += ("operations", "operations_records", "console", "planner", "soak")
PEERS = ("mock", "kfake", "kafka")

INTRO = """\
# Benchmarks

Ottla beside its peers, in one run on one machine, in turn, round after round. **Ratios come first**: absolute rates are
those of the machine. A figure is the median of its rounds; in brackets stand the first and the third quartile (with
fewer than three rounds the lowest and the highest). A ratio is taken within each round, then the median of the rounds.

```
make bench                        # everything, about twenty minutes on a quiet machine; writes this page
make bench ONLY=broker QUICK=1  # a part: broker, cluster, sdk, columnar, spark, connector, growth, operations, planner
make bench-page                   # this page again, from the result files there are
make soak MINUTES=30              # the demo's services under load and faults
```

`bench-results/<part>.jsonl` has what every round measured, a line of JSON for each figure. The peers come with it:
kfake where Go is installed, Apache Kafka where Java and Maven are, the Python peers (`benchmarks/peers.txt`) in an
environment of their own. Each is started by the run and ended with it.
"""

SOAK = """\
`make soak`: an embedded cluster of three brokers with three replicas, the demo's flights as load, two members of the
demo's handler service, and from a seed: connections cut, deaf or stalled, members killed and replaced, the leading
broker killed. At the end everything is read back: each flight that was sent is handled, or dead for the reason that is
its own. Flat is judged on the samples after the first third, by the median of all slopes, for each process that lives
from the beginning to the end. A line per interval tells of each process its memory and open descriptors, and what is
handled, dead, behind and disturbed so far; the exit code is 0 only if all is flat and nothing is lost. The same seed
draws the same faults: `make soak MINUTES=30 SEED=7`.

What still grows a little is known: every node keeps its metadata log in memory (the quorum takes no snapshots yet), and
each broker that dies and returns adds some tens of KB to it. Without faults the cluster grows by 1 to 2 bytes a record.
"""

PLANNER = """\
`python benchmarks/planner.py`: plans of `ottla plan` for random clusters of 6 to 40 brokers with 1 to 4 racks, grown or
shrunk, a third of them with disks of two sizes. Beside them stands what `kafka-reassign-partitions --generate` of Kafka
4 proposes: everything anew, by number. *Can be reached* is the level that no placement can stay below, *the least* what
is on brokers that go and what is above the limit of the others. The run is on an embedded cluster: a fourth broker
joins, and is filled with 180 MB under a throttle of 10 MB/s. What the throttle lets pass at once is counted.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--docs", type=Path, default=Path(__file__).resolve().parent.parent / "docs")
    options = parser.parse_args()
    parts = {name: part for name in PARTS if (part := read(name, options.results)) is not None}
    try:
        import plots
    except ImportError as reason:
        print(f"no plots: {reason}")
        drawn: dict[str, str] = {}
    else:
        drawn = plots.draw(parts, options.docs / "benchmarks")
    page = options.docs / "benchmarks.md"
    page.write_text(page_of(parts, drawn), encoding="utf-8")
    print(f"{page}: {len(parts)} of {len(PARTS)} parts, {len(drawn)} plots")


def page_of(parts: Parts, drawn: dict[str, str]) -> str:
    """The whole page. `drawn`: the plots that there are, section to file name."""
    sections = (
        INTRO,
        "## Where and when\n",
        *machine(parts),
        "## Goals\n",
        *goals(parts),
        *section("The broker beside other brokers", "broker", parts, drawn, broker_table),
        *section("Where the broker's time goes", "profile", parts, drawn, profile_table),
        *section("Replication", "cluster", parts, drawn, cluster_table),
        *section("Producing", "producer", parts, drawn, producer_table),
        *section("Consuming", "sdk", parts, drawn, sdk_table),
        *section("Columns", "columnar", parts, drawn, pairs_table),
        *section("Spark", "spark", parts, drawn, pairs_table),
        *section("Beside Spark's own connector", "connector", parts, drawn, pairs_table),
        *section("Growth", "growth", parts, drawn, growth_table),
        *section("Commands beside Kafka's scripts and others", "operations", parts, drawn, contenders_table),
        *section("Commands that read and write records", "operations_records", parts, drawn, contenders_table),
        *section("The console", "console", parts, drawn, contenders_table),
        *section("Plans of moves", "planner", parts, drawn, planner_table, words=PLANNER),
        *section("Soak", "soak", parts, drawn, soak_table, words=SOAK),
    )
    return "\n".join(sections).rstrip() + "\n"


# --- head


def machine(parts: Parts) -> Iterable[str]:
    if not parts:
        yield "Nothing is measured yet.\n"
        return
    head = next(iter(parts.values())).head
    yield f"{head['cpu']}, {head['cpus']} CPUs, {head['memory_gb']:g} GB, {head['system']}, Python {head['python']}.\n"
    yield "| part | when | took | CPUs busy before | with |"
    yield "|---|---|---|---|---|"
    for name, part in parts.items():
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(part.head["began_s"]))
        versions = ", ".join(f"{package} {version}" for package, version in part.head["versions"].items())
        busy = f"{part.head['busy']:.0%}"
        rough = [" **(busy)**"] * (part.head["busy"] > BUSY) + [" **(quick mode)**"] * part.head["quick"]
        yield f"| {name} | {when} UTC | {part.head['seconds']:.0f} s | {busy}{''.join(rough)} | {versions} |"
    yield ""
    if any(part.head["busy"] > BUSY or part.head["quick"] for part in parts.values()):
        yield "Parts that are marked are rough: the machine was busy with something else, or rounds were few.\n"


def goals(parts: Parts) -> Iterable[str]:
    yield "| area | what | goal | measured | |"
    yield "|---|---|---|---|---|"
    missed: dict[str, list[str]] = {}
    counts = dict.fromkeys(State, 0)
    for goal in GOALS:
        found = goal.measure(parts)
        counts[found.state] += 1
        yield f"| {goal.area} | {goal.what} | {goal.wanted} | {found.words} | {found.state.value} |"
        if found.state is State.NOT_MET:
            missed.setdefault(goal.why or "No profile of this is made yet.", []).append(f"{goal.what} ({found.words})")
    yield ""
    yield (
        f"{len(GOALS)} goals: {counts[State.MET]} met, {counts[State.NOT_MET]} not met, "
        f"{counts[State.NOT_MEASURED]} not measured.\n"
    )
    if missed:
        yield "Why those are not met, and what would change it:\n"
        for why, which in missed.items():
            yield f"- {'; '.join(which)}. {why}"
        yield ""


def section(title, name, parts, drawn, table, words=""):  # type: ignore[no-untyped-def]
    yield f"## {title}\n"
    if words:
        yield words
    part = parts.get(name)
    if part is None:
        yield "Not measured.\n"
        return
    for key, (file, words) in drawn.items():
        if key == name or key.startswith(f"{name}/"):
            yield f"![{words}](benchmarks/{file})\n"
    yield from table(part)
    yield ""
    for what, contender, problem in part.problems:
        yield f"- {what}, {contender}: {problem}"
    if part.problems:
        yield ""


# --- tables


def spread(result: Result) -> str:
    """`12.3 [11.9–12.8]`"""
    if len(result.runs) == 1:
        return number(result.value)
    return f"{number(result.value)} [{number(result.spread[0])}–{number(result.spread[1])}]"


def names_of(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.what for result in results))


def broker_table(part: Part) -> Iterable[str]:
    peers = [peer for peer in PEERS if any(result.contender == peer for result in part.results)]
    yield "Ratios are Ottla's figure divided by the peer's: for rates more is better, for CPU, memory and times less.\n"
    titles = ["", *(f"/ {NAMES[peer]}" for peer in peers), "Ottla", *(NAMES[peer] for peer in peers)]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * (2 * len(peers) + 2) + "|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        if ours is None:
            continue
        theirs = [part.get(what, peer) for peer in peers]
        ratios = [f"{ratio_of(ours, peer):.2f}" if peer is not None else "" for peer in theirs]
        yield f"| {what} | {' | '.join([*ratios, spread(ours), *(spread(p) if p else '' for p in theirs)])} |"


def profile_table(part: Part) -> Iterable[str]:
    yield "CPU time of the broker's process, and the functions that take most of what is Python's (under cProfile).\n"
    yield "| | | |"
    yield "|---|---|---|"
    for result in part.results:
        load, _, what = result.what.partition(", ")
        function = what.removeprefix("in ")
        is_function = result.unit == "% of its Python"
        yield f"| {load} | {f'in `{function}`' if is_function else what} | {number(result.value)} {result.unit} |"


def cluster_table(part: Part) -> Iterable[str]:
    yield "| | / Apache Kafka | Ottla | Apache Kafka |"
    yield "|---|---|---|---|"
    for what in names_of(part.results):
        ours, kafka = part.get(what, "ottla"), part.get(what, "kafka")
        if ours is not None:
            ratio = f"{ratio_of(ours, kafka):.2f}" if kafka is not None else ""
            theirs = spread(kafka) if kafka is not None else ""
            yield f"| {what}, {ours.unit} | {ratio} | {spread(ours)} | {theirs} |"


def producer_table(part: Part) -> Iterable[str]:
    yield "100-byte values, a key, two headers, idempotent, acks=all, every delivery heard of.\n"
    yield "| | / raw confluent-kafka | / raw aiokafka | k records/s |"
    yield "|---|---|---|---|"
    bases = [part.get("produce", base) for base in ("raw confluent-kafka", "raw aiokafka")]
    for result in part.results:
        ratios = " | ".join(f"{ratio_of(result, base):.2f}" if base else "" for base in bases)
        yield f"| {result.contender} | {ratios} | {spread(result)} |"


def sdk_table(part: Part) -> Iterable[str]:
    yield "Handlers that only count. The CPU ratio is Ottla's time per record divided by the peer's: less is better.\n"
    yield "| | rate ratio | CPU ratio | Ottla, k records/s | peer, k records/s |"
    yield "|---|---|---|---|---|"
    for title, (ours, peers) in GROUPS.items():
        mine, my_cpu = part.get("consume", ours), part.get("CPU per record", ours)
        if mine is None or my_cpu is None:
            continue
        for peer in peers:
            theirs, their_cpu = part.get("consume", peer), part.get("CPU per record", peer)
            if theirs is None or their_cpu is None:
                yield f"| {title} / {peer} | not measured | | {spread(mine)} | |"
                continue
            ratios = f"{ratio_of(mine, theirs):.2f} | {ratio_of(my_cpu, their_cpu):.2f}"
            yield f"| {title} / {peer} | {ratios} | {spread(mine)} | {spread(theirs)} |"
    fair = [what for what in names_of(part.results) if what.endswith(", wait p50")]
    if fair:
        yield "\nFairness: a slow handler, hot partitions with far more than can be handled, and a quiet one.\n"
        yield "| | who | wait p50, s | longest, s | all, records/s |"
        yield "|---|---|---|---|---|"
    for what in fair:
        base = what.removesuffix(", wait p50")
        for waited in [result for result in part.results if result.what == what]:
            worst, rate = (part.get(f"{base}, {each}", waited.contender) for each in ("longest wait", "rate"))
            others = " | ".join(number(each.value) if each else "" for each in (worst, rate))
            yield f"| {base.removeprefix('fairness, ')} | {waited.contender} | {number(waited.value)} | {others} |"


def pairs_table(part: Part) -> Iterable[str]:
    yield "| | ratio | goal | Ottla | beside it |"
    yield "|---|---|---|---|---|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        other = next((each for each in part.results if each.what == what and each.contender != "ottla"), None)
        if ours is None and other is not None:
            yield f"| {what}, {other.unit} | | | | {spread(other)} ({other.contender}) |"
        elif ours is not None and other is not None:
            goal = "" if ours.goal is None else f"{ours.goal:g}"
            beside = f"{spread(other)} ({other.contender})"
            yield f"| {what}, {ours.unit} | {ratio_of(ours, other):.2f} | {goal} | {spread(ours)} | {beside} |"


def contenders_table(part: Part) -> Iterable[str]:
    """Every contender of a figure in its row."""
    yield "| | goal | Ottla | beside it |"
    yield "|---|---|---|---|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        others = [each for each in part.results if each.what == what and each.contender != "ottla"]
        unit = (ours or others[0]).unit
        goal = "" if ours is None or ours.goal is None else f"{ours.goal:g}"
        beside = ", ".join(f"{spread(each)} ({NAMES.get(each.contender, each.contender)})" for each in others)
        yield f"| {what}, {unit} | {goal} | {'' if ours is None else spread(ours)} | {beside} |"


def growth_table(part: Part) -> Iterable[str]:
    """The first and the last point of each curve; the plots have all of them."""
    yield "The ends of each curve; the plots and the result file have the points between.\n"
    yield "| curve | from | to |"
    yield "|---|---|---|"
    for what in names_of(part.results):
        points = sorted((each for each in part.results if each.what == what), key=lambda each: each.x or 0)
        ends = [f"{number(each.value)} {each.unit} at {each.x:,g}" for each in (points[0], points[-1])]
        yield f"| {what} | {' | '.join(ends)} |"


def planner_table(part: Part) -> Iterable[str]:
    """How a figure is spread over the clusters; their points are in the plot."""
    yield "| | by | goal | median | p90 | worst |"
    yield "|---|---|---|---|---|---|"
    for result in part.results:
        if result.x is not None:
            continue
        ordered = sorted(result.runs)
        ninth = ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
        goal = "" if result.goal is None else f"{result.goal:g}"
        rest = f"{number(ninth)} | {number(ordered[-1])}" if len(ordered) > 1 else " | "
        who = NAMES.get(result.contender, result.contender)
        yield f"| {result.what}, {result.unit} | {who} | {goal} | {number(result.value)} | {rest} |"


def soak_table(part: Part) -> Iterable[str]:
    yield "| | |"
    yield "|---|---|"
    for result in part.results:
        yield f"| {result.what} | {number(result.value)} {result.unit} |"


if __name__ == "__main__":
    main()
