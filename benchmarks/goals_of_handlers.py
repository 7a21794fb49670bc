"""Goals of what handlers and sends can do besides: telemetry, delays, counting once, columns, worker processes.

The one place where these figures stand: the programs only measure, the page judges.
"""

from __future__ import annotations

from goals_of_bridge import BRIDGE
from goals_of_queues import QUEUES
from goals_of_telemetry import TELEMETRY
from judging import Goal, Wanted

AT_LEAST_ONCE = "the same at least once"
BEFORE = "before `max_rate` and event types"
BY_HAND = "by hand, a transaction per record"
INSERT_BY_HAND = "an insert by hand"
LOOP = "confluent-kafka loop"
NOT_USED = "a plain handler, {}"
ONE_WORKER = "one worker"
RECOVERY = "after an outage, order by key: all that failed is handled"
QUIX = "Quix Streams, exactly once"
TRANSACTIONS = "confluent-kafka loop, transactions"
UNORDERED = "unordered"
TWO_WORKERS = "a handler that computes, two workers"

COSTING = (
    "`max_rate` that is not reached",
    "event types in a header",
    "event types in a field, text",
    "event types in a field, numbers",
    "event types by schema name",
)
"""Options whose cost is measured against the same handler without them."""


_WAITS = (
    "What a delay adds is Python per record: its delay is looked up, the clock is read, the slot is chosen and the "
    "record that waits is checked for its size. That is 0.4 µs beside the 1 µs of Python that each send takes before "
    "the client's call. The client's own part is a key, which says where the message goes and when: by CPU time a "
    "plain `send` with such a key and a partition has 0.88 to 0.96 of the rate of one without, a scheduled one 0.79 "
    "to 0.86. With an id that is a header, which costs the client ten times as much. `send_many` looks the delay up "
    "once."
)


_OPENED = (
    "The thread that fetches opens what came as well. It waits for a broker less than a twentieth of its time, so the "
    "processor time that it takes per record is the rate. More than half of that is making columns: a seventh finds "
    "where records begin, a seventh reads their numbers, a tenth copies keys and values, which touches each record's "
    "memory again. Receiving and the session are a ninth each, the checksum and what is asked for next a fifteenth "
    "each. A second thread would share the processors with the broker, and the interpreter's lock with this one. What "
    "would change it is one pass over the records instead of one per column: that path compiled."
)
_COPIES = (
    "Nine tenths of a transaction's time pass until its rows are acknowledged; offsets and commit are the rest. By the "
    "CPU time of the process half is writing rows and a third reading them, and the broker takes about as much as the "
    "reading does. All share the processors of one machine, and by CPU time a record of the peer's loop costs about "
    "twice as much: much more is to be had only where there are more processors. A partition's next run begins when "
    "the one before it is committed."
)
_TRICKLE = (
    "From the socket to the handler a record takes two threads, of which the first is woken by the socket and wakes "
    "the second; the threaded shell needs one more. By CPU time two fifths of this way are Python that finds the "
    "record in the response, which the threaded shell's client does in C; a third is the session's, which both have; "
    "the rest is the worker and its batch. What would change it is fewer calls on the first of these, or that path "
    "compiled. Handling the record in the thread that fetches it was slower: the next fetch is then asked for late."
)
_SPANS = (
    "A row of JSON is no object any more: numpy finds the values of all rows at once, and Arrow reads their numbers. "
    "By CPU time that takes half of what msgspec and the columns of its objects take, and more than twice what "
    "Avro takes. A row is five times as long as in Avro, each byte of it is looked at, and so is what stands between "
    "the values, which Avro does not have. That is some two hundred calls on arrays of a batch, where a compiled "
    "reader needs one pass. Fetching a record costs about as much, and shares two processors with that and the broker."
)
_BULK_FIRST = (
    "With the processors to itself it is 36 ms (33 to 41): what takes longer is a machine that does something else, as "
    "a record goes through five threads of two processes. By CPU time an urgent record waits for the response that is "
    "under way and for the one behind it, of which 16 KiB of a partition are 3,000 records where batches compress as "
    "well as these, 1.2 µs each to take out of the client and to make a record of; for the run that its worker has, "
    "3 ms; and for up to 5 ms whenever the poll thread comes back from the client and a handler has the interpreter. "
    "RabbitMQ's clients are given urgent messages alone while there are any, and its bulk gets nothing meanwhile."
)
_BULK_WAITS = (
    "By CPU time a record by priority costs what a plain one does (0.94 to 1.02). What is left are waits: bulk is "
    "paused while enough of it is buffered, and comes with the fetch after the one that waits for what is urgent. "
    "With a handler that does nothing its worker waited for a fifth of the time, and for an eighth since a fetch of "
    "such a group waits for 100 ms and not for 500."
)
_ONE_BY_ONE = (
    "Quix Streams does the same work: one call and one `produce` per record, and a transaction with its offsets for "
    "all that comes in 0.1 s. By the CPU time of its process Ottla needs about a fifth of that of Quix Streams, in "
    "several threads that share one interpreter lock: a third is what fills the client's buffer, a quarter the handler "
    "and what it sends, a fifth is reading, and the rest is librdkafka's own. Five sixths hold the lock, and the rate "
    "follows as far as the lock is never idle. It hardly is: to handle a partition's next run while the one before it "
    "is committed was tried and made no difference, for another partition's records fill that time; nor did "
    "transactions of 8,192 or 16,384 records, or another switch interval. By `perf` the CPU time is flat: a fifth is "
    "the interpreter's loop, a sixteenth the garbage collector, and no other function has 3 %. Only less Python per "
    "record would change it. Handlers of columns have no call per record, and a goal of their own."
)
_DISK = (
    "A run of up to 500 records is one transaction. Its commit waits for the disk once, and the server's insert keeps "
    "an index. This process's own share is some 4 µs: the ids of the run, the text that the driver is given, and the "
    "answer with each new id."
)
_FILE = (
    "A run of up to 500 records is one transaction, whose commit waits for the disk once: `synchronous` is as SQLite "
    "has it, full. The rest is CPU, and half of that SQLite's own for two trees: the ids, and when each was seen."
)
_TWO_KEYS = (
    "A run of up to 500 records is two round trips, and each sets a key for each message: a claim that runs out, then "
    "a mark. Each is one script, sent through redis-py, so that its instrumentors see it; the figure of 13.1 was "
    "measured when commands were packed and answers read past redis-py, and has not been measured since. A "
    "prototype with one key for a whole run saved a quarter of the server's time. It was not kept: a mistake in what "
    "belongs to a run would mark a message as done before a handler had it."
)


def _messaging(
    what: str, figure: float, unit: str, *, peer: str = "", has_program: bool = True, why: str = ""
) -> Wanted:
    return Wanted(
        area="delays and priorities",
        part="messaging",
        what=what,
        figure=figure,
        unit=unit,
        peer=peer,
        has_program=has_program,
        why=why,
    )


_SHARED_CPUS = (
    "Two workers that compute need two free CPUs, and the broker runs on the same machine. Where CPU by record is the "
    "same for one worker and for two, the rate follows the CPUs that are free."
)


def _once(part: str, what: str, figure: float, unit: str, *, peer: str = "", why: str = "") -> Wanted:
    return Wanted(area="counting once", part=part, what=what, figure=figure, unit=unit, peer=peer, why=why)


def _columns(what: str, figure: float, unit: str, *, peer: str = "", why: str = "") -> Wanted:
    return Wanted(
        area="handlers of columns",
        part="columns",
        what=what,
        figure=figure,
        unit=unit,
        peer=peer,
        why=why,
    )


def _costs() -> list[Wanted]:
    area, part = "max_rate and event types", "handler_costs"
    limited = [Wanted(area=area, part=part, what=f"{what}: adds", figure=0.3, unit="µs per record") for what in COSTING]
    return limited + [
        Wanted(area=area, part=part, what=NOT_USED.format(value), figure=0.99, unit="instructions", peer=BEFORE)
        for value in ("bytes", "JSON")
    ]


WANTED: tuple[Wanted, ...] = (
    *TELEMETRY,
    _messaging("scheduled one by one", 0.8, "records/s", peer="`send` without a delay", why=_WAITS),
    _messaging("scheduled by `send_many`", 0.8, "records/s", peer="`send_many` without a delay", why=_WAITS),
    _messaging("dispatch of what is due, one scheduler", 50_000, "records/s"),
    _messaging("delayed messages, p99 of how late they come", 0.3, "s"),
    _messaging("start with 10 million scheduled over 30 days", 5, "s"),
    _messaging("start with 10 million scheduled over 30 days, more memory", 100, "MB"),
    _messaging("retry topics in the order of keys, backlog gone after the load", 4.6, "s"),
    _messaging("retry topics in the order of keys, backlog gone after the load, 3 replicas", 4.6, "s"),
    _messaging(RECOVERY, 0.77, "s", peer=UNORDERED),
    _messaging("urgent records beside a bulk backlog, p99 of their wait", 100, "ms", why=_BULK_FIRST),
    _messaging("bulk's share while urgent records wait", 0.04, "of records"),
    _messaging("a backlog by priority", 0.95, "records/s", peer="the same topics, plain", why=_BULK_WAITS),
    _once("once", "an inbox in PostgreSQL adds", 25, "µs per record", why=_DISK),
    _once("once", "an inbox in Redis adds", 10, "µs per record", why=_TWO_KEYS),
    _once("once", "an inbox in SQLite adds", 10, "µs per record", why=_FILE),
    _once("once", "offsets= in PostgreSQL, one insert", 4, "µs per record", peer=BY_HAND),
    _once("exactly_once", "threads, exactly once", 0.7, "records/s", peer=AT_LEAST_ONCE),
    _once("exactly_once", "asyncio, exactly once", 0.7, "records/s", peer=AT_LEAST_ONCE),
    _once("exactly_once", "threads, exactly once", 5, "records/s", peer=QUIX, why=_ONE_BY_ONE),
    _columns("bytes", 2.5, "M records/s", peer=LOOP, why=_OPENED),
    _columns("bytes, CPU", 2, "µs per record", peer=LOOP),
    _columns("Avro, 5 fields", 6, "M records/s", peer=LOOP),
    _columns("JSON, 5 fields", 2, "M records/s", peer=LOOP, why=_SPANS),
    _columns("topic to topic, exactly once", 5, "M records/s", peer=QUIX),
    _columns("topic to topic, exactly once", 3, "M records/s", peer=TRANSACTIONS, why=_COPIES),
    _columns("a trickle, linger_ms=0, p50", 0.83, "ms", peer="threads", why=_TRICKLE),
    _columns("a slow handler 100 partitions behind: most memory", 1, "x FlowLimits"),
    *_costs(),
    Wanted(
        area="worker processes",
        part="workers",
        what=TWO_WORKERS,
        figure=1.7,
        unit="records/s",
        peer=ONE_WORKER,
        why=_SHARED_CPUS,
    ),
    *BRIDGE,
    *QUEUES,
)

HANDLERS: tuple[Goal, ...] = tuple(wanted.goal() for wanted in WANTED)


def wanted_of(part: str, what: str, peer: str = "") -> str:
    """The goal in words; empty where there is none."""
    found = (each for each in WANTED if (each.part, each.what, each.peer) == (part, what, peer))
    return next((each.limit() for each in found), "")
