"""Handlers of columns beside the threaded shell and plain confluent-kafka loops, in one run on the same data.

    python benchmarks/columns.py [--records 1000000] [--partitions 12] [--rounds 3] [--only decoding exactly-once ...]
                                 [--results bench-results]

A broker runs in a child process. All contenders of a row alternate, each in a group of its own that commits at least
once, and the median of the rounds counts: the ratio is what to look at. Time runs from the first batch that a contender
has in its hands to its last record. The plain loops read each record's key and value and decode it where the row says
so; a commit follows every 10,000 records. `CPU` is the process's own processor time per record, the clients' threads
included, from the start of the contender.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import io
import itertools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import columns_exactly_once
import columns_memory
import columns_trickle
import fastavro
import pyarrow as pa
from columnar import FAST_CONSUMER, broker_process, create_topics, fill
from confluent_kafka import Consumer
from goals_of_handlers import LOOP
from results import Results, Shown
from tables import beside_table

from ottla import App, Avro, Bytes, Json, configure_logging
from ottla.columnar import write
from ottla.serdes import SerdeContext

BATCHES = "threads, batches"
numbers = itertools.count(1)


@dataclasses.dataclass
class Order:
    shop: str
    number: int
    customer: str | None
    amount: float
    paid: bool


class Clock:
    """From the first record that is handled to the last."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._cpu_s = time.process_time()
        self._started_s = 0.0
        self.seconds = 0.0
        self.cpu_s = 0.0

    def begin(self) -> None:
        """Records are in our hands."""
        if not self._started_s:
            self._started_s = time.perf_counter()

    def count(self, records: int) -> bool:
        """So many were handled. Whether these were the last."""
        self._left -= records
        if self._left <= 0 and not self.seconds:
            self.seconds = time.perf_counter() - self._started_s
            self.cpu_s = time.process_time() - self._cpu_s
        return self._left <= 0


def of_columns(servers: str, topic: str, serde: Any, records: int) -> Clock:
    app, clock = App(f"columns-{next(numbers)}", bootstrap_servers=servers), Clock(records)

    @app.handler(topic, value=serde, columns=True)
    def handle(batch: pa.RecordBatch) -> None:
        clock.begin()
        if clock.count(batch.num_rows):
            app.stop()

    app.run(handle_signals=False)
    return clock


def of_records(servers: str, topic: str, serde: Any, records: int) -> Clock:
    app, clock = App(f"records-{next(numbers)}", bootstrap_servers=servers), Clock(records)

    @app.handler(topic, value=serde, batch=True, max_batch=10_000)
    def handle(values: list[Any]) -> None:
        clock.begin()
        if clock.count(len(values)):
            app.stop()

    app.run(handle_signals=False)
    return clock


def plain(servers: str, topic: str, decode: Callable[[bytes], object] | None, records: int) -> Clock:
    clock = Clock(records)
    settings = {**FAST_CONSUMER, "group.id": f"plain-{next(numbers)}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers} | settings)
    consumer.subscribe([topic])
    is_over = False
    while not is_over:
        messages = consumer.consume(10_000, 1)
        if not messages:
            continue
        clock.begin()
        for message in messages:
            message.key()
            value = message.value()
            if decode is not None:
                decode(value)
        is_over = clock.count(len(messages))
        consumer.commit(asynchronous=True)
    consumer.close()
    return clock


def orders(count: int) -> Iterable[Order]:
    return (Order(f"shop-{i % 50}", i, None if i % 3 else f"customer {i}", i / 7, i % 2 == 0) for i in range(count))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--partitions", type=int, default=12)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", choices=ROWS, nargs="*", default=list(ROWS), help="these rows alone")
    options.add_argument("--results", type=Path, help="the folder for columns.jsonl")
    options.add_argument("--quick", action="store_true", help="one short round: rough figures")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.records, chosen.rounds = 200_000, 1
    configure_logging(level="error")
    results = Shown("columns", chosen.results, is_quick=chosen.quick)
    for name in chosen.only:
        ROWS[name](results, chosen)
    results.close()
    print("\n".join(("", *beside_table(results.part()))))


def measure_decoding(results: Results, chosen: argparse.Namespace) -> None:
    """Records to handlers, at least once: bytes, Avro, JSON."""
    records, partitions = chosen.records, chosen.partitions
    some = min(records, 200_000)
    avro = Avro(Order)
    schema = fastavro.parse_schema(avro.schema)
    read_avro = fastavro.schemaless_reader
    with broker_process() as servers:
        create_topics(servers, "bytes", "avro", "json", partitions=partitions)
        fill(servers, "bytes", partitions=partitions, records=records)
        encoded = [avro.serialize(order, SerdeContext("avro")) for order in orders(some)]
        write("avro", pa.table({"value": pa.array(encoded, pa.binary())}), bootstrap_servers=servers)
        texts = [json.dumps(dataclasses.asdict(order)).encode() for order in orders(some)]
        write("json", pa.table({"value": pa.array(texts, pa.binary())}), bootstrap_servers=servers)
        rows: list[tuple[str, str, Any, int]] = [
            ("bytes", "bytes", Bytes(), records),
            ("Avro, 5 fields", "avro", avro, some),
            ("JSON, 5 fields", "json", Json(Order), some),
        ]
        by_hand: dict[str, Callable[[bytes], object] | None] = {
            "bytes": None,
            "avro": lambda raw: read_avro(io.BytesIO(raw), schema, None),
        }
        try:
            by_hand["json"] = importlib.import_module("orjson").loads
        except ImportError:
            results.problem("JSON, 5 fields", LOOP, "orjson is not installed")
        for what, topic, serde, count in rows:
            took: dict[str, list[Clock]] = {"ottla": [], BATCHES: [], LOOP: []}
            for _ in range(chosen.rounds):
                took["ottla"].append(of_columns(servers, topic, serde, count))
                took[BATCHES].append(of_records(servers, topic, serde, count))
                if topic in by_hand:
                    took[LOOP].append(plain(servers, topic, by_hand[topic], count))
            write_row(results, what, count, took)


def measure_exactly_once(results: Results, chosen: argparse.Namespace) -> None:
    """From topic to topic."""
    records, few = chosen.records // 2, 20_000 if chosen.quick else 60_000
    with broker_process() as servers:
        columns_exactly_once.measure(
            results, servers, records=records, few=few, partitions=chosen.partitions, rounds=chosen.rounds
        )


def measure_trickle(results: Results, chosen: argparse.Namespace) -> None:
    with broker_process() as servers:
        columns_trickle.measure(results, servers, rounds=chosen.rounds, records=100 if chosen.quick else 500)


def measure_memory(results: Results, chosen: argparse.Namespace) -> None:
    columns_memory.measure(results, rounds=1 if chosen.quick else 2, seconds=4.0 if chosen.quick else 8.0)


ROWS = {
    "decoding": measure_decoding,
    "exactly-once": measure_exactly_once,
    "trickle": measure_trickle,
    "memory": measure_memory,
}


def write_row(results: Results, what: str, records: int, took: dict[str, list[Clock]]) -> None:
    """One row's rates and processor time, of each contender."""
    for name, clocks in took.items():
        results.add(what, name, [records / clock.seconds / 1e6 for clock in clocks], "M records/s")
        results.add(f"{what}, CPU", name, [clock.cpu_s / records * 1e6 for clock in clocks], "µs per record")


if __name__ == "__main__":
    main()
