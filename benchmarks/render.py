"""Make `docs/benchmark-results.md`, its plots and the first page from the result files that there are.

    python benchmarks/render.py [--results bench-results] [--docs docs]

What was not measured says so; nothing is carried over from an earlier page. The plots need matplotlib; without it the
page has its tables alone.
"""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path

import first_page
import run
from goals import DROPPED, GOALS
from judging import Parts, State
from page_words import (
    BRIDGE,
    COLUMNS,
    CONNECTOR,
    EXACTLY_ONCE,
    HANDLER_COSTS,
    HOT_PATHS,
    INSTRUCTIONS,
    MESSAGING,
    ONCE,
    OUTBOX,
    PLANNER,
    QUEUES,
    SOAK,
    SPARK_BATCHES,
    SPARK_CLUSTER,
    SPARK_READING,
    SPARK_STATE,
    TELEMETRY,
    WORKERS,
)
from results import BUSY, FOLDER, read
from tables import (
    beside_table,
    broker_table,
    cluster_table,
    contenders_table,
    figures_table,
    growth_table,
    hot_paths_table,
    pairs_table,
    planner_table,
    producer_table,
    profile_table,
    sdk_table,
    soak_table,
)

PARTS = ("broker", "profile", "cluster", "producer", "sdk", "columnar", "spark", "connector", "growth")
PARTS += ("spark_state", "spark_reading", "spark_batches", "spark_cluster")
PARTS += ("hot_paths", "instructions")
PARTS += ("telemetry", "messaging", "once", "exactly_once", "outbox", "columns")
PARTS += ("queues", "handler_costs", "workers")
PARTS += ("operations", "operations_records", "console", "planner", "bridge", "soak")

INTRO = f"""\
# All benchmark results

[Benchmarks](benchmarks.md) has the short version.

Ottla and its peers took turns in one run on one machine. **Ratios come first**: absolute rates depend on the
machine. A figure is the median of its rounds; in brackets stand the first and the third quartile (with
fewer than three rounds the lowest and the highest). A ratio is taken within each round, then the median of the rounds.

```
make bench                      # everything, less than {run.MINUTES} minutes on a quiet machine; writes this page
make bench ONLY=broker QUICK=1  # a part, rough figures
tools/run bench-page            # this page again, from the result files there are
tools/run soak --minutes 30     # the demo's services under load and faults
```

{textwrap.fill("The parts: " + ", ".join(f"`{part}`" for part in run.PARTS) + ".", 120)}

`bench-results/` has what every round measured, a line of JSON for each figure. The peers come with it:
kfake where Go is installed, Apache Kafka where Java and Maven are, the Python peers (`benchmarks/peers.txt`) in an
environment of their own. Each is started by the run and ended with it.
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
    page = options.docs / "benchmark-results.md"
    page.write_text(page_of(parts, drawn), encoding="utf-8")
    first_page.write(options.docs)
    print(f"{page}: {len(parts)} of {len(PARTS)} parts, {len(drawn)} plots")


def page_of(parts: Parts, drawn: dict[str, str]) -> str:
    """Return the whole page. `drawn` has the file name of each plot, by section."""
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
        *section("Hot paths", "hot_paths", parts, drawn, hot_paths_table, words=HOT_PATHS),
        *section("Instructions per request", "instructions", parts, drawn, contenders_table, words=INSTRUCTIONS),
        *section("Columns", "columnar", parts, drawn, pairs_table),
        *section("Spark", "spark", parts, drawn, pairs_table),
        *section("Beside Spark's own connector", "connector", parts, drawn, beside_table, words=CONNECTOR),
        *section("Spark: state", "spark_state", parts, drawn, figures_table, words=SPARK_STATE),
        *section("Spark: reading less", "spark_reading", parts, drawn, figures_table, words=SPARK_READING),
        *section("Spark: what a micro-batch costs", "spark_batches", parts, drawn, figures_table, words=SPARK_BATCHES),
        *section("Spark: on a cluster", "spark_cluster", parts, drawn, figures_table, words=SPARK_CLUSTER),
        *section("Growth", "growth", parts, drawn, growth_table),
        *section("What telemetry costs", "telemetry", parts, drawn, beside_table, words=TELEMETRY),
        *section("Delays and priorities", "messaging", parts, drawn, beside_table, words=MESSAGING),
        *section("Queues", "queues", parts, drawn, beside_table, words=QUEUES),
        *section("Limits and event types", "handler_costs", parts, drawn, beside_table, words=HANDLER_COSTS),
        *section("Worker processes", "workers", parts, drawn, beside_table, words=WORKERS),
        *section("Counting once in a database", "once", parts, drawn, beside_table, words=ONCE),
        *section("From topic to topic exactly once", "exactly_once", parts, drawn, beside_table, words=EXACTLY_ONCE),
        *section("An outbox and its relay", "outbox", parts, drawn, beside_table, words=OUTBOX),
        *section("Handlers of columns", "columns", parts, drawn, beside_table, words=COLUMNS),
        *section("Commands beside Kafka's scripts and others", "operations", parts, drawn, contenders_table),
        *section("Commands that read and write records", "operations_records", parts, drawn, contenders_table),
        *section("The console", "console", parts, drawn, contenders_table),
        *section("Plans of moves", "planner", parts, drawn, planner_table, words=PLANNER),
        *section("The bridge", "bridge", parts, drawn, beside_table, words=BRIDGE),
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
        busy = f"{part.head['busy']:.0%}" + (f", load {part.head['load']:g}" if "load" in part.head else "")
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
    yield DROPPED


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


if __name__ == "__main__":
    main()
