"""The figures to reach, and whether they are: each goal is a ratio between two contenders of one run, or a limit.

`GOALS` is the whole list; the page has a line for every entry, "not measured" where no result file has its figures.
`why` says what the profile shows and what would change it; the page shows it where the goal is not met.
"""

from __future__ import annotations

from goals_of_handlers import HANDLERS
from goals_of_hot_paths import CPU_RATIO, HOT_PATHS, HOT_PATHS_BY_THE_CLOCK, INSTRUCTIONS, TIME_RATIO
from judging import NAMES, Goal, at_least, at_most, ratio


def _sdk(what: str, ours: str, peer: str, least: float, *, why: str = "") -> Goal:
    return Goal(
        area="consuming",
        what=f"{what}: {ours} / {peer}",
        wanted=f"≥ {least:g}",
        measure=ratio("sdk", ("consume", ours), ("consume", peer), least),
        why=why,
    )


def _broker(what: str, peer: str, least: float, *, why: str = "") -> Goal:
    figure = f"{what}, k records/s"
    return Goal(
        area="broker",
        what=f"{what}: rate / {NAMES[peer]}",
        wanted=f"≥ {least:g}",
        measure=ratio("broker", (figure, "ottla"), (figure, peer), least),
        why=why,
    )


def _limit(area: str, part: str, what: str, limit: float, unit: str, *, said: str = "", why: str = "") -> Goal:
    return Goal(
        area=area,
        what=said or what,
        wanted=f"≤ {limit:g} {unit}",
        measure=at_most(part, what, "ottla", limit, unit),
        why=why,
    )


def _columnar(part: str, what: str, peer: str, least: float, *, why: str = "") -> Goal:
    return Goal(
        area="columns and Spark",
        what=f"{what}: rate / {peer}",
        wanted=f"≥ {least:g}",
        measure=ratio(part, (what, "ottla"), (what, peer), least),
        why=why,
    )


_LARGE = (
    "Three quarters of the broker's time on large produces are the kernel's, and most of that is one copy: of what is "
    "written into fresh pages of the page cache (`perf` has 54 % there, 6 % in receiving, 5 % in the checksum with its "
    "copy). The mock writes no file and keeps 5 MB per partition in memory that it uses again. Segment files that are "
    "recycled would make it cheaper."
)
_SMALL = (
    "Nine tenths of a small request are Python, spread over some thirty functions. None of them takes more than 7 % "
    "([what it costs](reference/broker.md#what-it-costs); `benchmarks/broker_profile.py` shows them). Only fewer calls "
    "per request, or that path compiled, would change it. Apache Kafka opens each batch and checks its records in "
    "these rows, which this broker does only with `log.records.validation.enable`."
)
_MORE_THAN_BEFORE = "The count was 190,000 when it was first measured. No profile shows the cause of the rise yet."
_RACE = (
    "A race inside librdkafka, as its protocol log shows: it sends Metadata and FindCoordinator together, and the "
    "answer to the first makes it give that connection up. Where the second answer has come by then a start takes "
    "105 ms (100 of them its wait before the first offset), else it asks again over its second connection, 50 ms "
    "later. What makes a small request cheaper would make the lucky case the usual one."
)
_TASKS = (
    "Every task starts Python code in a worker and hands Arrow batches over a socket; the last row of the table on "
    "Spark says what a task costs that does nothing. Fewer and larger tasks, or more records, would change it."
)
_START = (
    "By CPU time a third is the start of Python and of click, a quarter Ottla's own modules (`python -X importtime -m "
    "ottla topics list` shows both), and a third the answer with ten thousand partitions, which is Python on both "
    "sides."
)
_FAIR = "sdk"

DROPPED = """\
These figures have no goals, because they depend more on the machine or a peer than on Ottla; the last was out of reach.
The tables have them:

- The rates of `send`, `send_many` and batch handlers beside the raw client: on a busy machine the client's own rates
  vary by a quarter. *Hot paths* has the goals of their CPU time.
- `produce` of 100 B by the C client beside librdkafka's mock: *Instructions per request* measures it without noise.
- The broker's CPU per MB: the kernel spends it on fresh pages of the page cache.
- Produce to a waiting consumer, p50 and p99: they show how soon the machine wakes four threads. kfake has the same.
- The start of the broker's process: Python starts, and imports modules. In process a broker starts in 5 to 9 ms.
- The start of a group with librdkafka: librdkafka itself waits 150 ms.
- `topics list` and `groups lag` beside franz-go: Python and click take longer to start than franz-go's program runs.
- An empty handler of `@app.queue` beside librdkafka's share consumer that settles whole batches: three times its rate
  was wanted. Its loop takes 0.7 to 0.9 µs of CPU per job (300,000 jobs), though it calls a Python function with each
  value and acknowledges each: 0.02 µs are the call, and a batch's outcomes go together as one range. In implicit mode,
  without a call to acknowledge, it is 0.5 to 0.8 µs. So a third of its time is less than librdkafka itself takes to
  fetch a record. Python takes 1 µs to read a record out of its batch, and a queue keeps a lease and an outcome for
  each record: *Queues* has the whole cost. A loop that commits each acknowledgement without waiting takes 3 to 6 µs. A
  worker that must not repeat finished jobs has to wait, and takes 50 µs. *Job by job* is that loop, and has the goal.
"""

GOALS: tuple[Goal, ...] = (
    _sdk("per record, bytes", "ottla bytes", "quixstreams json", 2.0),
    _sdk("per record, JSON", "ottla json", "quixstreams json", 1.6),
    _sdk("per record, Avro", "ottla avro", "quixstreams json", 0.8),
    _sdk("per record, JSON", "ottla json", "faststream[confluent] json", 10),
    _sdk("asyncio, JSON", "ottla asyncio json", "faststream[kafka] json", 3),
    _sdk("batch handler, JSON", "ottla batch json", "faststream[confluent] batch json", 5),
    Goal(
        area="fairness",
        what="1 hot partition of 16: p50 wait of a quiet partition's record",
        wanted="≤ 0.05 s",
        measure=at_most(_FAIR, "fairness, 1 hot, wait p50", "ottla", 0.05, "s"),
    ),
    Goal(
        area="fairness",
        what="1 hot partition of 16: rate of all records / confluent-kafka loop",
        wanted="≥ 0.9",
        measure=ratio(
            _FAIR,
            ("fairness, 1 hot, rate", "ottla"),
            ("fairness, 1 hot, rate", "confluent-kafka loop"),
            0.9,
        ),
    ),
    *(
        _broker(
            f"{verb} {size} B {codec}", peer, 0.9 if peer != "kafka" else 1.0, why=_LARGE if size == 1000 else _SMALL
        )
        for verb, among in (("produce", ("mock", "kfake", "kafka")), ("consume", ("kfake", "kafka")))
        for size in (100, 1000)
        for codec in ("none", "lz4")
        for peer in among
    ),
    *(
        _limit(
            "broker", "instructions", what, most, "instructions", said=f"{what}, instructions", why=_MORE_THAN_BEFORE
        )
        for what, most in INSTRUCTIONS.items()
    ),
    *(
        Goal(
            area="hot paths",
            what=f"{name}: {what}",
            wanted=f"≥ {least:g}",
            measure=at_least("hot_paths", what, name, least, ""),
            why="The raw loop has no session, no account of each record and no context for its handler.",
        )
        for what, goals in ((CPU_RATIO, HOT_PATHS), (TIME_RATIO, HOT_PATHS_BY_THE_CLOCK))
        for name, least in goals.items()
    ),
    _broker("C client, produce 1000 B none", "mock", 0.6, why=_LARGE),
    _limit("broker", "broker", "RSS empty, MB", 45, "MB", said="resident memory, nothing written"),
    _limit("broker", "broker", "RSS at the end, MB", 45, "MB", said="resident memory after everything above"),
    _limit(
        "broker",
        "cluster",
        "start of 3 in process",
        50,
        "ms",
        said="start of three brokers in process",
        why="A quarter is opening six directories, an eighth is the election, the rest some twenty-five fetches of the "
        "metadata log by which three registrations and their unfencing are agreed on. Fewer, larger batches would "
        "change it.",
    ),
    _limit("broker", "broker", "group start, KIP-848, ms", 150, "ms", why=_RACE),
    *(
        Goal(
            area="replication",
            what=f"three replicas, acks=all, {size} B: rate / Apache Kafka",
            wanted="≥ 0.5",
            measure=ratio(
                "cluster",
                (f"acks=all, three replicas, {size} B", "ottla"),
                (f"acks=all, three replicas, {size} B", "kafka"),
                0.5,
            ),
            why="Three brokers share one event loop, so one core serves a leader and both followers; Kafka's three use "
            "all cores. A process per broker would change it.",
        )
        for size in (100, 1000)
    ),
    *(
        _limit(
            "replication",
            "cluster",
            f"failover, the fixtures' times: kill of the {kind} to the next ack",
            1000,
            "ms",
            why="The cluster has a new leader after 5 to 15 ms, and after 45 to 150 ms where the controller died too. "
            "The rest is the client's: librdkafka asks who leads when the connection breaks, if it has another one, "
            "and else at the next tick of a second (its debug=metadata shows it).",
        )
        for kind in ("leader", "leader and controller")
    ),
    _columnar("columnar", "read into Arrow, 8 columns", "consume(10000), ignored", 1.5),
    _columnar("columnar", "decode alone", "consume(10000), ignored", 3),
    _columnar(
        "columnar",
        "write, idempotent, lz4",
        "produce() loop, same",
        2,
        why="A fifth of a write is lz4, a sixth the socket, a third lays records out by partition (gather, varints); "
        "all of it one after another in one thread, while librdkafka compresses and sends beside the loop. Compressing "
        "the next batches while one is sent would change it.",
    ),
    _columnar("columnar", "Avro to columns, 5 fields", "fastavro loop", 5),
    _columnar("spark", "batch read, planned tasks", "consume(10000), ignored", 1.5, why=_TASKS),
    _columnar(
        "spark",
        "stream, 240,000 rows a batch",
        "consume(10000), ignored",
        0.9,
        why="A micro-batch pays Spark's planning, its offset log and commit log and the start of its tasks, "
        "whatever its size. Larger batches, or fewer tasks, would change it.",
    ),
    _columnar("spark", "Kafka to Spark to Kafka", "produce() loop, no Spark", 0.7, why=_TASKS),
    _limit("commands", "operations", "help", 0.15, "s", said="`ottla --help`"),
    _limit("commands", "operations", "a dead address", 1.0, "s", said="a dead address is reported"),
    _limit(
        "commands", "operations", "10,000 partitions created", 10.0, "s", said="10,000 partitions created on one broker"
    ),
    *(
        Goal(
            area="commands",
            what=f"`{what}`, 1,000 topics: time of {NAMES['kafka']} / Ottla's",
            wanted="≥ 5",
            measure=ratio("operations", (what, "kafka"), (what, "ottla"), 5.0),
            why=_START,
        )
        for what in ("topics list", "groups lag")
    ),
    _limit("commands", "operations", "doctor, 10,000 partitions", 5.0, "s"),
    _limit("commands", "operations", "doctor, 10,000 partitions: most memory", 150.0, "MB"),
    *(
        Goal(
            area="commands",
            what=f"`consume`, {what}: rate / kcat",
            wanted="≥ 0.3",
            measure=ratio(
                "operations_records", (f"consume: {what}: rate", "ottla"), (f"consume: {what}: rate", "kcat"), 0.3
            ),
        )
        for what in ("values", "all fields", "JSON")
    ),
    *(
        _limit("commands", "operations_records", f"{what}, 1,000,000 letters: memory", 100.0, "MB")
        for what in ("dlq list", "dlq show of the last", "dlq redrive")
    ),
    _limit("console", "console", "slowest page, 10,000 partitions", 300.0, "ms"),
    _limit("console", "console", "first facts, from the start of the process", 5.0, "s"),
    _limit("console", "console", "memory while a fast topic is followed, 10,000 partitions", 120.0, "MB"),
    Goal(
        area="console",
        what="a topic at full speed: rate while it is followed / unwatched",
        wanted="≥ 0.95",
        measure=ratio("console", ("a topic at full speed", "followed"), ("a topic at full speed", "unwatched"), 0.95),
        why="Writer, broker and console share two cores, and the first two take both whole. The console may take 3 % "
        "of one for the tail. Facts of 10,000 partitions are read 3 % of the time, from a broker that is one process.",
    ),
    _columnar("connector", "many small partitions", "Spark's own connector", 1.0),
    *HANDLERS,
)
