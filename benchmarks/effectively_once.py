"""What it costs per record to count once, beside the loop that users write by hand.

    python benchmarks/effectively_once.py [--rounds 7] [--results bench-results]

Runs are given to a handler as a worker gives them, without a broker: what is measured is the store's part and Ottla's
own. A run has as many records as the product gives such a handler: its policy is asked, and told how long the handler
takes. That is 128 records, and with an inbox or `offsets=` up to 500 if the handler takes less than 50 ms for them. The
hand-written loop is a transaction per record with an `insert ... on conflict` for the message and one for the work.
PostgreSQL has `fsync` on. Servers that the platform does not have are left out, with the reason.
Medians of rounds; within a round all contenders take turns. CPU is this process's own, of all its threads: it suffers
less from neighbours than time does, and leaves the server's part out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from goals_of_handlers import BY_HAND
from results import Results, Shown
from tables import beside_table

from ottla import App, Inbox, configure_logging
from ottla.app.app import declarations_of
from ottla.consumer.model.run import Run
from ottla.consumer.scheduling.route import Pace
from ottla.records import Record, TopicPartition
from ottla.stores import Memory, Sqlite
from ottla.testing.databases import NoServer, postgres_server, redis_server

HERE = TopicPartition("orders", 0)
ALONE = "handler alone"


class Cost(NamedTuple):
    """Seconds of the clock and of the processor."""

    wall_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Cost:
        return cls(time.perf_counter(), time.process_time())

    def until_now(self, records: int) -> Cost:
        """Per record, since."""
        now = Cost.now()
        return Cost((now.wall_s - self.wall_s) / records, (now.cpu_s - self.cpu_s) / records)


class Log:
    """Records with ids that never come twice."""

    def __init__(self) -> None:
        self._next = 0

    def run(self, size: int) -> Run:
        first, self._next = self._next, self._next + size
        records: list[Record[Any]] = [
            Record(*HERE, first + i, 0, None, None, [("ottla-id", b"m-%d" % (first + i))], b"k", b"v")
            for i in range(size)
        ]
        return Run(topic_partition=HERE, epoch=1, route="r", records=records, attempt=1, started_ms=0)


def handled(log: Log, records: int, **options: Any) -> Callable[[], Cost]:
    """Seconds per record of a handler with these options, for about so many records. `handler` is the function."""
    group = uuid.uuid4().hex
    app = App(group)
    handler = options.pop("handler", None) or _nothing
    app.handler("orders", **options)(handler)
    (route,) = declarations_of(app).routes
    invoker = route.invoker([], {})
    if route.once is not None and route.once.offsets is not None:
        session = route.once.store.session()
        route.once.epochs[HERE] = session.claim_offsets(group, "bench", [HERE])[HERE].epoch
        session.close()

    plan = route.plan()
    pace = Pace(at_first=plan.at_first)

    def once() -> Cost:
        size = pace.most(allowance=plan.max_records_per_turn, turn_ms=plan.turn_ms)
        given = [log.run(size) for _ in range(-(-records // size))]
        began = Cost.now()
        for run in given:
            result = invoker.deliver(run)
            assert result.done is None, "a record was not handled"
            assert not result.failures, "a record failed"
        cost = began.until_now(len(given) * size)
        of_the_handler_s = cost.wall_s * size - sum(run.store_s for run in given) / len(given)
        pace.learn(records=size, took_ms=max(0, round(of_the_handler_s * 1_000)))
        return cost

    return once


def _nothing(value: bytes) -> None:
    """The work of a handler that is only counted."""


def _nothing_in(value: bytes, transaction: Any) -> None:
    """The same, for an inbox in the transaction."""


def _insert_psycopg(value: bytes, transaction: Any) -> None:
    transaction.execute("insert into work (n) values (%s)", (1,))


def _insert_sqlite(value: bytes, transaction: Any) -> None:
    transaction.execute("insert into work (n) values (?)", (1,))


def by_hand(log: Log, records: int, conninfo: str) -> Callable[[], Cost]:
    """The loop that users write: psycopg, one transaction per record."""
    import psycopg

    connection = psycopg.connect(conninfo, autocommit=True)

    def once() -> Cost:
        run = log.run(records)
        began = Cost.now()
        for record in run.records:
            with connection.transaction():
                new = connection.execute(
                    "insert into seen (id) values (%s) on conflict do nothing returning id",
                    (record.headers[0][1].decode(),),
                ).fetchone()
                if new is not None:
                    connection.execute("insert into work (n) values (%s)", (1,))
        return began.until_now(records)

    return once


def contenders(stack: ExitStack, results: Results) -> Iterator[tuple[str, Callable[[], Cost]]]:
    log = Log()
    yield ALONE, handled(log, 6_400)
    sqlite = Sqlite(stack.enter_context(tempfile.TemporaryDirectory()) + "/bench.db")
    sqlite.create_tables()
    session = sqlite.session()
    session.transaction.execute("create table work (n int)")
    session.close()
    yield "an inbox in memory", handled(log, 6_400, inbox=Inbox(Memory()))
    yield "an inbox in SQLite", handled(log, 2_560, inbox=Inbox(sqlite), handler=_nothing_in)
    yield "an inbox in SQLite that claims", handled(log, 2_560, inbox=Inbox(sqlite))
    yield "offsets= in SQLite, one insert", handled(log, 2_560, offsets=sqlite, handler=_insert_sqlite)
    try:
        from ottla.stores import Redis

        redis = Redis(stack.enter_context(redis_server()).url)
        yield "an inbox in Redis", handled(log, 2_560, inbox=Inbox(redis))
    except (NoServer, ImportError) as reason:
        results.problem("inboxes", "Redis", str(reason))
    try:
        from ottla.stores import Postgres

        server = stack.enter_context(postgres_server(fsync=True))
        postgres = Postgres(server.conninfo)
        postgres.create_tables()
        own = postgres.session()
        own.transaction.execute("create table work (n int)")
        own.transaction.execute("create table seen (id text primary key)")
        own.close()
        yield "an inbox in PostgreSQL", handled(log, 2_560, inbox=Inbox(postgres), handler=_nothing_in)
        yield "an inbox in PostgreSQL that claims", handled(log, 2_560, inbox=Inbox(postgres))
        yield "offsets= in PostgreSQL, one insert", handled(log, 2_560, offsets=postgres, handler=_insert_psycopg)
        both = {"offsets": postgres, "inbox": Inbox(postgres), "handler": _insert_psycopg}
        yield "offsets= and an inbox in PostgreSQL, one insert", handled(log, 2_560, **both)
        yield BY_HAND, by_hand(log, 500, server.conninfo)
    except (NoServer, ImportError) as reason:
        results.problem("inboxes and offsets=", "PostgreSQL", str(reason))


def measure(rounds: int, results: Results) -> dict[str, list[Cost]]:
    """What a record cost each contender, round after round."""
    with ExitStack() as stack:
        took: dict[str, list[Cost]] = {}
        all_of_them = list(contenders(stack, results))
        for number in range(rounds + 1):
            for name, once in all_of_them:
                cost = once()
                if number:  # the first round warms up: prepared statements, pages, code
                    took.setdefault(name, []).append(cost)
        return took


def write(results: Results, took: dict[str, list[Cost]]) -> None:
    """Microseconds per record: what an inbox adds to the handler alone, and what the others cost beside the loop."""
    alone = took[ALONE]
    for name, each in took.items():
        is_inbox = name.startswith("an inbox")
        what = f"{name} adds" if is_inbox else name
        for which, suffix in ((0, ""), (1, ", CPU")):
            base = alone if is_inbox else [Cost(0, 0)] * len(each)
            runs = [(cost[which] - without[which]) * 1e6 for cost, without in zip(each, base, strict=True)]
            if name == BY_HAND:
                for beside in (name for name in took if name.startswith("offsets=") and "PostgreSQL" in name):
                    results.add(f"{beside}{suffix}", BY_HAND, runs, "µs per record")
            else:
                results.add(f"{what}{suffix}", "ottla", runs, "µs per record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for once.jsonl")
    arguments = parser.parse_args()
    configure_logging(level="error")
    results = Shown("once", arguments.results, is_quick=arguments.quick)
    write(results, measure(1 if arguments.quick else arguments.rounds, results))
    results.close()
    print("\n".join(("", *beside_table(results.part()))))


if __name__ == "__main__":
    main()
