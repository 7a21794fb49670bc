"""Columnar reading, writing and decoding beside plain confluent-kafka loops, in one run on the same data.

    python benchmarks/columnar.py [--records 1000000] [--partitions 12] [--rounds 5]

A broker runs in a child process. Both sides of a pair alternate, and the median of the rounds counts: the ratio is what
to look at, seconds belong to the machine. The plain consumer is tuned and its start-up is not counted.

Goals: read 1.5 x, decode alone 3 x, write 2 x, Avro 5 x (fastavro).
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from results import Results

from ottla.columnar import read, write
from ottla.columnar.reading.decode import scan
from ottla.columnar.values.decoding import decoder_for
from ottla.columnar.writing.encode import plan_batches
from ottla.serdes import Avro, SerdeContext
from ottla.wire_client.fetching.fetched_batches import Segment
from ottla.wire_client.producing.outgoing_batch import finish_batch

VALUE_BYTES = 100

_BROKER = """
import sys
from broker_embedded.cluster import EmbeddedCluster
with EmbeddedCluster() as cluster:
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


@contextmanager
def broker_process() -> Iterator[str]:
    """A broker of its own process; it ends when its standard input does."""
    child = subprocess.Popen([sys.executable, "-c", _BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.stdin.close()
        child.wait(60)


def create_topics(bootstrap_servers: str, *names: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        created.result(10)


def fill(bootstrap_servers: str, topic: str, *, partitions: int, records: int) -> pa.Table:
    """The data of the read benchmarks: 8-byte keys, random 100-byte values, not compressed."""
    random = np.random.default_rng(1)
    raw = random.integers(0, 256, records * VALUE_BYTES, dtype=np.uint8)
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(VALUE_BYTES), records, [None, pa.py_buffer(raw)])
    table = pa.table(
        {
            "key": pa.array([b"%08d" % i for i in range(records)], pa.binary()),
            "value": values.cast(pa.binary()),
            "partition": pa.array(np.arange(records, dtype=np.int32) * partitions // records, pa.int32()),
        }
    )
    write(topic, table, bootstrap_servers=bootstrap_servers, settings={"compression.type": "none"})
    return table


FAST_CONSUMER = {
    "group.id": "plain",
    "enable.auto.commit": False,
    # By default librdkafka stops fetching for a second whenever 100,000 messages wait: five times slower here.
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 10,
}


def plain_consume(bootstrap_servers: str, topic: str, *, partitions: int, records: int) -> float:
    """The loop to beat: it does nothing with the messages. Seconds from the first message on, which favours it."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers} | FAST_CONSUMER)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    count = len(consumer.consume(1, 10))
    started = time.perf_counter()
    while count < records:
        count += len(consumer.consume(min(10_000, records - count), 1))
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


def plain_produce(bootstrap_servers: str, topic: str, rows: list[tuple[bytes, bytes]]) -> None:
    """The loop to beat: idempotent, no callback."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            "compression.type": "lz4",
        }
    )
    produce = producer.produce
    for number, (key, value) in enumerate(rows):
        produce(topic, value, key)
        if not number % 10_000:
            producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the plain producer did not deliver everything")


def timed(rounds: int, *works: Callable[[], object]) -> list[list[float]]:
    """Seconds of every round of each, in turn, so that a noisy moment does not hit one side alone."""
    took: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for number, work in enumerate(works):
            started = time.perf_counter()
            told = work()
            seconds = time.perf_counter() - started
            took[number].append(told if isinstance(told, float) else seconds)
    return took


def report(
    results: Results,
    what: str,
    records: int,
    ours: list[float],
    theirs: str,
    other: list[float],
    goal: float | None,
    *,
    name: str = "ottla",
) -> None:
    results.add(what, name, [records / seconds / 1e6 for seconds in ours], "M records/s", goal=goal)
    results.add(what, theirs, [records / seconds / 1e6 for seconds in other], "M records/s")
    ours_s, theirs_s = statistics.median(ours), statistics.median(other)
    ratio = theirs_s / ours_s
    if goal is None:
        print(f"{what:<34} {records / ours_s / 1e6:6.2f} M/s   {theirs:<28} {records / theirs_s / 1e6:6.2f} M/s")
        return
    verdict = "reached" if ratio >= goal else "MISSED"
    print(
        f"{what:<34} {records / ours_s / 1e6:6.2f} M/s   {theirs:<28} {records / theirs_s / 1e6:6.2f} M/s"
        f"   ratio {ratio:5.2f}   goal {goal:g} {verdict}"
    )


def decode_alone(records: int) -> Callable[[], object]:
    """Fetched bytes in memory: 1 MiB batches as librdkafka makes them."""
    data = np.random.default_rng(1).integers(0, 256, records * VALUE_BYTES, dtype=np.uint8)
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(VALUE_BYTES), records, [None, pa.py_buffer(data)])
    batches = plan_batches(
        key=pa.array([b"%08d" % i for i in range(records)], pa.binary()),
        value=values.cast(pa.binary()),
        headers=None,
        timestamps_ms=np.full(records, 1_700_000_000_000),
        partitions=np.zeros(records, dtype=np.int32),
        max_batch_bytes=1_000_000,
    )
    segments = []
    first = 0
    for batch in batches:
        encoded = bytearray(finish_batch(batch))
        encoded[:8] = first.to_bytes(8, "big")
        segments.append(Segment(topic="t", partition=0, data=memoryview(encoded), start=0))
        first += batch.row_count

    def work() -> None:
        for segment in segments:
            list(scan([segment]).batches())

    return work


@dataclasses.dataclass
class Order:
    shop: str
    number: int
    customer: str | None
    amount: float
    paid: bool


def avro(records: int) -> tuple[Callable[[], object], Callable[[], object]]:
    serde = Avro(Order)
    raw = []
    schema = fastavro.parse_schema(serde.schema)
    for i in range(records):
        order = Order(f"shop-{i % 50}", i, None if i % 3 else f"customer {i}", i / 7, i % 2 == 0)
        raw.append(serde.serialize(order, SerdeContext("orders")))
    column = pa.array(raw, pa.binary())
    decoder = decoder_for(serde)
    chunks = [column.slice(start, 20_000) for start in range(0, records, 20_000)]

    def ours() -> None:
        for chunk in chunks:
            decoder.decode(chunk)

    def theirs() -> None:
        read_one = fastavro.schemaless_reader
        for data in raw:
            read_one(io.BytesIO(data), schema, None)

    return ours, theirs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--partitions", type=int, default=12)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--results", type=Path, help="the folder for columnar.jsonl")
    chosen = options.parse_args()
    results = Results("columnar", chosen.results)
    records, partitions, rounds = chosen.records, chosen.partitions, chosen.rounds
    print(f"{records:,} records of {VALUE_BYTES} bytes, {partitions} partitions, median of {rounds} alternated rounds")
    with broker_process() as servers:
        create_topics(servers, "big", "ours", "theirs", partitions=partitions)
        table = fill(servers, "big", partitions=partitions, records=records)
        ours_s, theirs_s = timed(
            rounds,
            lambda: [None for _ in read("big", bootstrap_servers=servers)],
            lambda: plain_consume(servers, "big", partitions=partitions, records=records),
        )
        report(results, "read into Arrow, 8 columns", records, ours_s, "consume(10000), ignored", theirs_s, 1.5)
        (decode_s,) = timed(rounds, decode_alone(records))
        report(results, "decode alone", records, decode_s, "consume(10000), ignored", theirs_s, 3)
        some = table.slice(0, min(records, 500_000)).drop_columns(["partition"])
        rows = list(zip(some.column("key").to_pylist(), some.column("value").to_pylist(), strict=True))
        ours_s, theirs_s = timed(
            rounds,
            lambda: write("ours", some, bootstrap_servers=servers),
            lambda: plain_produce(servers, "theirs", rows),
        )
        report(results, "write, idempotent, lz4", len(rows), ours_s, "produce() loop, same", theirs_s, 2)
    count = min(records, 200_000)
    ours_s, theirs_s = timed(rounds, *avro(count))
    report(results, "Avro to columns, 5 fields", count, ours_s, "fastavro loop", theirs_s, 5)
    results.close()


if __name__ == "__main__":
    main()
