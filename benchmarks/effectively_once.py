"""What it costs per record to count once, beside the loop that users write by hand.

    python benchmarks/effectively_once.py            about a minute
    python benchmarks/effectively_once.py --json     the same figures for a program

Runs of 128 records are given to a handler as a worker gives them, without a broker: what is measured is the store's
part and Ottla's own. The hand-written loop is a transaction per record with an `insert ... on conflict` for the message
and one for the work. PostgreSQL has `fsync` on. Servers that the platform does not have are left out, with the reason.
Medians of rounds; within a round all contenders take turns. CPU is this process's own, of all its threads: it suffers
less from neighbours than time does, and leaves the server's part out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from ottla import App, Inbox
from ottla.consumer.model.run import Run
from ottla.records import Record, TopicPartition
from ottla.stores import Memory, Sqlite
from ottla.testing.databases import NoServer, postgres_server, redis_server

HERE = TopicPartition("orders", 0)
RUN = 128
GOALS = {
    "inbox, PostgreSQL": 25.0,
    "inbox, Redis": 10.0,
    "inbox, SQLite": 10.0,
}
"""Microseconds per record that an inbox may add."""


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


def handled(log: Log, runs: int, **options: Any) -> Callable[[], Cost]:
    """Seconds per record of a handler with these options. `handler` is the function."""
    group = uuid.uuid4().hex
    app = App(group)
    handler = options.pop("handler", None) or _nothing
    app.handler("orders", **options)(handler)
    (route,) = app.routes
    invoker = route.invoker([], {})
    if route.once is not None and route.once.offsets is not None:
        session = route.once.store.session()
        route.once.epochs[HERE] = session.claim_offsets(group, "bench", [HERE])[HERE].epoch
        session.close()

    def once() -> Cost:
        given = [log.run(RUN) for _ in range(runs)]
        began = Cost.now()
        for run in given:
            result = invoker.deliver(run)
            assert result.done is None, "a record was not handled"
            assert not result.failures, "a record failed"
        return began.until_now(runs * RUN)

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


def contenders(stack: ExitStack) -> Iterator[tuple[str, Callable[[], Cost]]]:
    log = Log()
    yield "handler alone", handled(log, 50)
    sqlite = Sqlite(stack.enter_context(tempfile.TemporaryDirectory()) + "/bench.db")
    sqlite.create_tables()
    session = sqlite.session()
    session.transaction.execute("create table work (n int)")
    session.close()
    yield "inbox, memory", handled(log, 50, inbox=Inbox(Memory()))
    yield "inbox, SQLite", handled(log, 20, inbox=Inbox(sqlite), handler=_nothing_in)
    yield "inbox, SQLite, claims", handled(log, 20, inbox=Inbox(sqlite))
    yield "offsets=, SQLite, one insert", handled(log, 20, offsets=sqlite, handler=_insert_sqlite)
    try:
        from ottla.stores import Redis

        redis = Redis(stack.enter_context(redis_server()).url)
        yield "inbox, Redis", handled(log, 20, inbox=Inbox(redis))
    except (NoServer, ImportError) as reason:
        print(f"Redis is left out: {reason}")
    try:
        from ottla.stores import Postgres

        server = stack.enter_context(postgres_server(fsync=True))
        postgres = Postgres(server.conninfo)
        postgres.create_tables()
        own = postgres.session()
        own.transaction.execute("create table work (n int)")
        own.transaction.execute("create table seen (id text primary key)")
        own.close()
        yield "inbox, PostgreSQL", handled(log, 20, inbox=Inbox(postgres), handler=_nothing_in)
        yield "inbox, PostgreSQL, claims", handled(log, 20, inbox=Inbox(postgres))
        yield "offsets=, PostgreSQL, one insert", handled(log, 20, offsets=postgres, handler=_insert_psycopg)
        both = {"offsets": postgres, "inbox": Inbox(postgres), "handler": _insert_psycopg}
        yield "offsets= and inbox, PostgreSQL, one insert", handled(log, 20, **both)
        yield "by hand, PostgreSQL, a transaction per record", by_hand(log, 500, server.conninfo)
    except (NoServer, ImportError) as reason:
        print(f"PostgreSQL is left out: {reason}")


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median microseconds per record: `us` of the clock, `cpu_us` of this process."""
    with ExitStack() as stack:
        took: dict[str, list[Cost]] = {}
        all_of_them = list(contenders(stack))
        for number in range(rounds + 1):
            for name, once in all_of_them:
                cost = once()
                if number:  # the first round warms up: prepared statements, pages, code
                    took.setdefault(name, []).append(cost)
        return {
            name: {
                "us": statistics.median(cost.wall_s for cost in each) * 1e6,
                "cpu_us": statistics.median(cost.cpu_s for cost in each) * 1e6,
            }
            for name, each in took.items()
        }


def report(figures: dict[str, dict[str, float]]) -> list[str]:
    lines = [f"{'microseconds per record':46} {'clock':>9} {'CPU':>9}"]
    lines += [f"{name:46} {each['us']:9.1f} {each['cpu_us']:9.1f}" for name, each in figures.items()]
    for name, goal in GOALS.items():
        if name in figures:
            adds = figures[name]["us"] - figures["handler alone"]["us"]
            cpu = figures[name]["cpu_us"] - figures["handler alone"]["cpu_us"]
            met = "met" if adds <= goal else "MISSED"
            lines.append(f"{name} adds {adds:.1f} ({cpu:.1f} of CPU), goal {goal:g}: {met}")
    hand = figures.get("by hand, PostgreSQL, a transaction per record")
    if hand is not None:
        ratio = hand["us"] / figures["offsets=, PostgreSQL, one insert"]["us"]
        lines.append(
            f"offsets= is {ratio:.1f} times the hand-written loop, goal 4: {'met' if ratio >= 4 else 'MISSED'}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds)
    print(json.dumps(figures) if arguments.json else "\n".join(report(figures)))


if __name__ == "__main__":
    main()
