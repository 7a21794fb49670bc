"""Rows of an outbox: what it costs to add one, and how many a relay sends, beside the code that users write by hand.

    python benchmarks/outbox_relay.py [--rows 20000] [--rounds 5] [--results bench-results]

Rows are added in transactions of 100. A relay sends them to a topic of four partitions and deletes them. Time counts
from its start until the table is empty. The loop by hand does the same with confluent-kafka: 500 rows in a transaction,
`flush`, `delete`. It keeps no order of keys when a record fails, knows no other relay and parks nothing. PostgreSQL has
`fsync` on, and is left out where the platform has none. Medians of rounds; within a round all contenders take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import servers
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from goals_of_handlers import INSERT_BY_HAND, LOOP
from results import Results, Shown
from tables import beside_table

from ottla import Outbox, configure_logging
from ottla.stores import Sqlite
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.testing.databases import NoServer, postgres_server
from ottla.testing.waiting import wait_until

VALUE = b"x" * 100
IN_A_TRANSACTION = 100
AT_A_TIME = 500
GIVE_UP_S = 300.0
Measure = dict[str, Callable[[int], float]]


class Table:
    """An outbox in one database, and a connection of the user's own."""

    def __init__(self, name: str, store: Any, bootstrap: str, topic: str) -> None:
        self.name, self._bootstrap, self._topic = name, bootstrap, topic
        self.outbox = Outbox(store)
        self.outbox.create_tables()
        self.connection = store.connection().transaction
        self._mark = "?" if name == "SQLite" else "%s"
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})

    def measures(self) -> Measure:
        """What is measured → (rows → seconds). Those that send follow one that added rows."""
        return {"added": self.add, "relayed": self.relay, "inserted by hand": self.insert, "sent by hand": self.send}

    def add(self, rows: int) -> float:
        """In transactions of the user's."""
        began = time.perf_counter()
        for first in range(0, rows, IN_A_TRANSACTION):
            self.connection.execute("begin")
            for number in range(first, min(rows, first + IN_A_TRANSACTION)):
                self.outbox.add(self.connection, self._topic, VALUE, key=b"%d" % number)
            self.connection.execute("commit")
        return time.perf_counter() - began

    def insert(self, rows: int) -> float:
        """The same rows, with what nobody can leave out."""
        statement = f"insert into ottla_outbox (topic, key, value) values ({self._mark}, {self._mark}, {self._mark})"
        began = time.perf_counter()
        for first in range(0, rows, IN_A_TRANSACTION):
            self.connection.execute("begin")
            for number in range(first, min(rows, first + IN_A_TRANSACTION)):
                self.connection.execute(statement, (self._topic, b"%d" % number, VALUE))
            self.connection.execute("commit")
        return time.perf_counter() - began

    def relay(self, rows: int) -> float:
        """All that is there, by a relay that has sent nothing yet."""
        relay = OutboxRelay(self.outbox, self._bootstrap, interval_s=0.01)
        began = time.perf_counter()
        thread = threading.Thread(target=relay.run)
        thread.start()
        try:
            wait_until(self._is_empty, timeout_s=GIVE_UP_S)
            return time.perf_counter() - began
        finally:
            relay.stop()
            thread.join(60)

    def send(self, rows: int) -> float:
        """The loop by hand."""
        among = f"in ({','.join('?' * AT_A_TIME)})" if self.name == "SQLite" else "= any(%s)"
        lock = "" if self.name == "SQLite" else " for update skip locked"
        began = time.perf_counter()
        while True:
            self.connection.execute("begin")
            found = self.connection.execute(
                f"select id, topic, key, value from ottla_outbox order by id limit {AT_A_TIME}{lock}"
            ).fetchall()
            for _, topic, key, value in found:
                self._producer.produce(topic, value, key)
            self._producer.flush()
            ids = [row[0] for row in found]
            padded = [*ids, *[0] * (AT_A_TIME - len(ids))] if self.name == "SQLite" else [ids]
            self.connection.execute(f"delete from ottla_outbox where id {among}", padded)
            self.connection.execute("commit")
            if not found:
                return time.perf_counter() - began

    def _is_empty(self) -> bool:
        (waiting,) = self.connection.execute("select count(*) from ottla_outbox").fetchone()
        return bool(waiting == 0)

    def close(self) -> None:
        self.connection.close()


def tables(stack: ExitStack, results: Results, bootstrap: str) -> Iterator[Table]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"outbox-{uuid.uuid4().hex[:8]}"
    for future in admin.create_topics([NewTopic(topic, 4, 1)]).values():
        future.result(30)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    yield Table("SQLite", Sqlite(folder + "/outbox.db"), bootstrap, topic)
    try:
        from ottla.stores import Postgres

        server = stack.enter_context(postgres_server(fsync=True))
        yield Table("PostgreSQL", Postgres(server.conninfo), bootstrap, topic)
    except (NoServer, ImportError) as reason:
        results.problem("relayed from PostgreSQL", "ottla", str(reason))


def measure(rows: int, rounds: int, results: Results) -> dict[str, dict[str, list[float]]]:
    """Database → what → seconds per row, round after round."""
    took: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(servers.started("ottla", [*servers.OTTLA]))
        every = list(tables(stack, results, server.bootstrap))
        for table in every:
            stack.callback(table.close)
        for number in range(rounds + 1):
            for table in every:
                for what, run in table.measures().items():
                    seconds = run(rows) / rows
                    if number:  # the first round warms up: connections, prepared statements, pages
                        took.setdefault(table.name, {}).setdefault(what, []).append(seconds)
    return took


def write(results: Results, took: dict[str, dict[str, list[float]]]) -> None:
    for name, of_table in took.items():
        rates = {what: [1 / seconds for seconds in each] for what, each in of_table.items()}
        results.add(f"relayed from {name}", "ottla", rates["relayed"], "records/s")
        results.add(f"relayed from {name}", LOOP, rates["sent by hand"], "records/s")
        costs = {what: [seconds * 1e6 for seconds in each] for what, each in of_table.items()}
        results.add(f"added in {name}", "ottla", costs["added"], "µs per record")
        results.add(f"added in {name}", INSERT_BY_HAND, costs["inserted by hand"], "µs per record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for outbox.jsonl")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.rounds = 3_000, 1
    configure_logging(level="error")
    results = Shown("outbox", arguments.results, is_quick=arguments.quick)
    write(results, measure(arguments.rows, arguments.rounds, results))
    results.close()
    print("\n".join(("", *beside_table(results.part()))))


if __name__ == "__main__":
    main()
