"""From topic to topic exactly once: a handler of columns beside two peers that copy the same rows.

The peers are a confluent-kafka loop with transactions, and Quix Streams. All write key and value of each record to a
topic of their own. Time counts from the first record in hand until the group has committed all of them. Ottla and the
loop write without compression, which is faster for both. The loop makes one transaction of what each `consume(10000)`
gives. Quix Streams is slower by far: it gets fewer records, of the same kind, for its round to take as long as the
others'. The first round only warms up: what came of it is read back and counted, for a contender that loses or doubles
rows is none. Part of `columns.py`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from columnar import FAST_CONSUMER, fill
from confluent_kafka import Consumer, Producer
from exactly_once_cost import Bench
from goals_of_handlers import QUIX, TRANSACTIONS
from peer_pythons import QUIX as QUIX_PACKAGE
from peer_pythons import how_to_install, is_installed
from quix_exactly_once import QuixRun
from results import Results

from ottla import App, CommitPolicy, ExactlyOnce
from ottla.columnar import read

WHAT = "topic to topic, exactly once"
Contender = Callable[[Bench, str, str], "Cost"]
"""The bench, a group, and the topic to write to."""

_PATIENCE_S = 60.0


class Cost(NamedTuple):
    """Seconds of the clock from the first record on, and of processor time of the contender's process: from its start
    to its end where that is this process, and from the first record on where it is another one."""

    wall_s: float
    cpu_s: float


def of_columns(bench: Bench, group: str, target: str) -> float:
    app = App(
        group,
        bootstrap_servers=bench.bootstrap,
        commit=CommitPolicy(every_s=0.05),
        producer_settings={"compression.type": "none"},
    )
    began: list[float] = []

    @app.handler(bench.source, columns=["key"], to=target, exactly_once=ExactlyOnce())
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        _ = began or began.append(time.perf_counter())
        return batch

    running = threading.Thread(target=lambda: app.run(handle_signals=False), daemon=True)
    running.start()
    bench.wait(group)
    took_s = time.perf_counter() - began[0]
    app.stop()
    running.join(_PATIENCE_S)
    return took_s


def in_a_loop(bench: Bench, group: str, target: str) -> float:
    """What users write by hand: consume, produce, the offsets, the commit. Settings that were slower here: a longer
    linger, and transactions of 50,000 records."""
    of_both = {"bootstrap.servers": bench.bootstrap}
    reading = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    writing = {"transactional.id": group, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000}
    consumer, producer = Consumer(of_both | FAST_CONSUMER | reading), Producer(of_both | writing)
    producer.init_transactions(_PATIENCE_S)
    consumer.subscribe([bench.source])
    produce, left, began_s = producer.produce, bench.records, 0.0
    while left > 0:
        messages = consumer.consume(10_000, 1)
        if not messages:
            continue
        began_s = began_s or time.perf_counter()
        producer.begin_transaction()
        for message in messages:
            produce(target, message.value(), message.key())
        places = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), _PATIENCE_S)
        producer.commit_transaction(_PATIENCE_S)
        left -= len(messages)
    bench.wait(group)
    took_s = time.perf_counter() - began_s
    consumer.close()
    return took_s


def by_quix(bench: Bench, group: str, target: str) -> Cost:
    run = QuixRun(bench.bootstrap, group, bench.source, target, bench.records)
    took_s = bench.wait(group) - run.began_s
    return Cost(took_s, run.cpu_s())


def here(contender: Callable[[Bench, str, str], float]) -> Contender:
    """Return a contender that runs in this process."""

    def run(bench: Bench, group: str, target: str) -> Cost:
        cpu_s = time.process_time()
        wall_s = contender(bench, group, target)
        return Cost(wall_s, time.process_time() - cpu_s)

    return run


CONTENDERS: Mapping[str, Contender] = {"ottla": here(of_columns), TRANSACTIONS: here(in_a_loop), QUIX: by_quix}


def measure(results: Results, servers: str, *, records: int, few: int, partitions: int, rounds: int) -> None:
    """In turn, each time with a topic and a group of its own. `few` records are for Quix Streams."""
    contenders = dict(CONTENDERS)
    if not is_installed(QUIX_PACKAGE):
        results.problem(WHAT, QUIX, how_to_install(QUIX_PACKAGE))
        del contenders[QUIX]
    many = _bench(servers, records, partitions)
    benches = dict.fromkeys(contenders, many)
    if QUIX in contenders:
        benches[QUIX] = _bench(servers, few, partitions)
    took: dict[str, list[Cost]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            bench = benches[name]
            target = bench.topic("target")
            whole = contender(bench, f"copies-{uuid.uuid4().hex}", target)
            cost = Cost(whole.wall_s / bench.records, whole.cpu_s / bench.records)
            if number:
                took[name].append(cost)
            else:
                _check(name, bench, target)
    write(results, took)


def write(results: Results, took: Mapping[str, Sequence[Cost | Any]]) -> None:
    for name, costs in took.items():
        results.add(WHAT, name, [1e-6 / cost.wall_s for cost in costs], "M records/s")
        results.add(f"{WHAT}, CPU", name, [cost.cpu_s * 1e6 for cost in costs], "µs per record")


def _bench(servers: str, records: int, partitions: int) -> Bench:
    bench = Bench(servers, records, partitions=partitions)
    fill(servers, bench.source, partitions=partitions, records=records)
    return bench


def _check(name: str, bench: Bench, target: str) -> None:
    found = sum(batch.num_rows for batch in read(target, bootstrap_servers=bench.bootstrap))
    if found != bench.records:
        raise SystemExit(f"{name} made {found:,} rows of {bench.records:,}")
