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
from results import BUSY, FOLDER, read
from tables import (
    beside_table,
    broker_table,
    cluster_table,
    contenders_table,
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

SOAK = """\
`tools/run soak`: an embedded cluster of three brokers with three replicas, the demo's flights as load, and two members
of the demo's handler service. A seed chooses the faults: connections are cut, blocked in one direction or stalled,
members are killed and replaced, and the leading broker is killed. At the end everything is read back: each flight that
was sent must be handled, or be a dead letter with the reason that was expected. Memory and descriptors of each process
that runs from the beginning to the end must be flat, by the median of all slopes after the first third. A line per
interval shows the memory and open descriptors of each process, and the records handled, dead-lettered and behind, and
the faults so far. The exit code is 0 only if all is flat and nothing is lost. The same seed repeats the faults:
`tools/run soak --minutes 30 --seed 7`.

The known growth is small: every node keeps its metadata log in memory (the quorum takes no snapshots yet), and
each broker that dies and returns adds some tens of KB to it. Without faults the cluster grows by 1 to 2 bytes a record.
"""

HOT_PATHS = """\
`make bench ONLY=hot_paths`: CPU time per record, of all threads of the process, beside a loop that does the same work
on the client alone. Each contender has a process of its own, and all take turns. `+h` marks records with two headers.
The longest pause is the longest garbage collection, during which all threads stop.
"""

INSTRUCTIONS = """\
`python benchmarks/instructions.py`: instructions that the broker executes for one request, in user mode, counted by
valgrind's cachegrind. Other programs of the machine hardly change the count.
"""

TELEMETRY = """\
`make bench ONLY=telemetry`: handlers that only count, and `send`, each in a process of its own: where `opentelemetry`
cannot be imported, with the API alone, with the SDK, all metrics and 1 % of traces, and with every span. An exporter
drops what it gets, so the service is measured. CPU is the process's own, of all its threads: on few cores the rate says
as well how client and broker share them. The last rows are what recording every span adds, beside the instrumentors of
the raw clients around the same work. [How to observe](how-to/observe.md) has what is recorded.
"""

MESSAGING = """\
`make bench ONLY=messaging`: [delayed messages](how-to/delayed-messages.md) beside plain sends of the same records, how
fast one scheduler hands out what is due, and how late messages come that are due within three seconds. A start counts
until a scheduler has all slots, has read what is open and has delivered what is due; its memory is what it has more
than one with nothing scheduled. [Retry topics](how-to/retry-topics.md) get 300 records/s of 40 keys
for ten seconds from one broker, and 3 % of the deliveries fail. Their delays are 0.3 and 2 s; the goal is that all
records are handled within twice the sum of the delays. Then [priorities](how-to/priorities.md): what an
urgent record waits beside a million
bulk records, and a backlog of three priorities beside the same topics without them, with a handler that takes 20 µs.
[RabbitMQ](migration/rabbitmq.md) does the same once, where Debian's package and pika are, with a smaller backlog: a
durable classic queue with `x-max-priority`, persistent messages, each acknowledged, 50 handed out ahead. It promises
that what was not acknowledged comes again, and that the highest priority goes first as long as it has any: the others
have no share meanwhile. It discards what is expired at the head of the queue; what the client has already is handed out
however old. Last, what a handler of 10 ms is given of 100 records with 0.2 s to live, and 20 ms more for the clocks.
What sends and handlers cost that use none of this is measured against an older checkout, by
`python benchmarks/messaging.py --part unused --against SRC`.
"""

QUEUES = """\
`make bench ONLY=queues`: [queues](how-to/queues.md) on share groups, jobs of 100 bytes from one partition of a broker
in a process of its own. A handler of `@app.queue` that only counts, with a concurrency of 64, and a loop over `Queue`
that accepts each job. Beside them librdkafka's share consumer (a preview), with explicit acknowledgements, and its
plain consumer, which settles nothing. The preview leases whole batches, here of ten thousand jobs, and acknowledges
them as one range; a queue leases what its workers can begin soon, renews each lease, and knows the state of each job.
The aim was three times the preview's rate, which a handler that is called from Python for each job does not reach. CPU
is the client's process. The rows of 1, 10 and 100 members compare the embedded broker with Apache Kafka's: all members
are `Queue`s of one process, which is the limit of ten and more.
"""

HANDLER_COSTS = """\
`make bench ONLY=handler_costs`: [`max_rate`](how-to/rate-limits.md) and [event types](how-to/event-types.md) without a
broker: the session hands out 512 records, their handler does nothing, and the session settles them. *Adds* is CPU time
above the same handler without it, in turns within one process. There are two types in turn, which is the dearest: a run
of one type is chosen for as a whole. A *plain handler* uses neither. Its instructions for a record are counted by
valgrind's cachegrind beside the last commit that had neither, and have in them whatever else came since.
"""

WORKERS = """\
`make bench ONLY=workers`: [`ottla run --workers`](how-to/worker-processes.md) with a handler that computes for about a
millisecond, in Python. Time counts from the first record handled to the last; all partitions are assigned before the
first is sent. CPU is measured in the workers' processes.
"""

ONCE = """\
`make bench ONLY=once`: runs of 128 records are handed to a handler as a worker does it, without a broker, so the part
of the store and that of Ottla are measured. *An inbox adds* is what it costs beside the handler alone. *By hand* is a
transaction per record with an `insert ... on conflict` for the message and an insert for the work. PostgreSQL has
`fsync` on. CPU is this process's own. [Effectively once](how-to/effectively-once.md) has the ways to count once.
"""

EXACTLY_ONCE = """\
`make bench ONLY=once`: each record is read from a topic of four partitions and written to another. Time counts from the
first record until the group has committed all of them. A member commits the runs of all its partitions with one
producer, and one for each partition commits the same beside it.
[Effectively once](how-to/exactly-once.md) has the handler.
"""

OUTBOX = """\
`make bench ONLY=once`: rows are added in transactions of 100, and a relay sends them to a topic of four partitions.
Time counts from its start until the table is empty. The loop sends 500 rows in a transaction, flushes and deletes them;
it keeps no order when a record fails and knows no other relay. PostgreSQL has `fsync` on.
[Send from a database transaction](how-to/outbox.md) has the outbox.
"""

COLUMNS = """\
`make bench ONLY=columns`: [handlers of columns](how-to/columns.md) beside batch handlers on threads and a plain
`consume(10000)` loop that reads key and value of each record, and decodes them with fastavro or orjson where the row
says so. All commit at least once. Time counts from the first batch; CPU is the process's own, of all its threads, from
its start.

*Topic to topic* copies key and value of each record into another topic: a handler that returns its batch, a loop that
makes a transaction of each `consume(10000)`, and Quix Streams. Time counts from the first record until the group has
committed all of them. The *most memory* of a slow handler is what the resident set of its process grows by from the
first record on, and *most in the buffers* is what they hold by their own account. Both are divided by the
`total_bytes` of the default `FlowLimits`.
"""

BRIDGE = """\
`make bench ONLY=bridge`: [MQTT and AMQP into Kafka](how-to/bridge.md), 100 B at QoS 1, each message in the embedded
broker with acks=all before it is acknowledged. A CPU second is one of the bridge's process, all of its threads: the
publishers and the broker run on the same CPUs. 1,000 connections keep 20 messages each in flight. Mosquitto beside it
acknowledges the same publishers and keeps nothing, and pika takes the messages of the queue, acknowledges a hundred at
a time and keeps nothing. By the clock RabbitMQ shares the CPUs with both, and its shovel, which has no road to Kafka,
moves the messages to another of its queues and confirms them. FastStream runs 50 handlers side by side that publish to
Kafka. Memory is what 10,000 connections add that send nothing. For the wait, publishers, bridge and broker are
scheduled before the machine's other processes (SCHED_RR); the row below is without that.
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
        *section("Beside Spark's own connector", "connector", parts, drawn, pairs_table),
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
