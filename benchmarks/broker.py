"""The broker beside its peers in the same run: rates, broker CPU, latency, memory.

    python benchmarks/broker.py            about three minutes for each peer
    python benchmarks/broker.py --quick    about twenty seconds, figures are rough
    python benchmarks/broker.py --written 10    only this: the broker's memory while 10 GB are written

Peers: librdkafka's mock cluster always; kfake where Go is installed, Apache Kafka where Java and Maven are (`--peers`
names fewer). All are child processes and are measured in turns, with the same confluent-kafka client
(idempotent, acks=all). Ratios come first, because absolute rates are those of the machine and of its neighbours; the
broker's CPU time is read from /proc, so it needs Linux. The mock keeps about 5 MB per partition and wakes no long poll,
so it is no peer for consuming and for latency; there our figures stand alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import c_client
from aiokafka import AIOKafkaConsumer
from compiled import CompiledModules
from confluent_kafka import Consumer, Producer, TopicPartition
from results import Results
from servers import OTTLA, PEERS, Server, peers, started

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, headers
from ottla_wire.records.record import RecordData, encode_batch

SIZES = (100, 1000)
CODECS = ("none", "lz4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round after so many")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the usual records and requests")
    parser.add_argument("--results", type=Path, help="the folder for broker.jsonl")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--written", type=float, default=0, metavar="GB", help="only: memory while so much is written")
    options = parser.parse_args()
    if options.written:
        keep = ("log.retention.bytes=200000000", "log.segment.bytes=100000000", "log.retention.check.interval.ms=500")
        command = [*OTTLA]
        for setting in (*keep, "log.segment.delete.delay.ms=0"):
            command += ["--set", setting]
        with started("ottla", command) as server:
            written(server, options.written)
            for name, values in server.figures.items():
                print(f"{name:58}{statistics.median(values):12.1f}")
        return
    results = Results("broker", options.results, is_quick=options.quick)
    rounds, scale = (1, 0.2) if options.quick else (options.rounds, options.scale)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-compiled-"))
        compiled = CompiledModules(Path(folder))
        with started("ottla", [*OTTLA], environment=compiled.as_installed()) as warm:
            first_record_acknowledged(warm)
        ottla = stack.enter_context(started("ottla", [*OTTLA], environment=compiled.as_installed()))
        others = peers(options.peers, stack)
        servers = [ottla, *others]
        for server in servers:  # memory is touched, and Java compiled, for the first time here
            for size in SIZES:
                produce(server, size, "none", "warm", scale)
            server.figures = {name: all_ for name, all_ in server.figures.items() if not name.startswith("produce")}
        begun = time.perf_counter()
        for round_number in range(rounds):
            if time.perf_counter() - begun > options.seconds:
                rounds = round_number
                break
            # Who comes later finds the machine warmer: they take turns.
            turn = round_number % len(servers)
            in_turn = servers[turn:] + servers[:turn]
            for size in SIZES:
                for codec in CODECS:
                    for server in in_turn:
                        produce(server, size, codec, round_number, scale)
                    for server in in_turn:
                        if server.name != "mock":
                            consume(server, size, codec, round_number)
            for codec in CODECS:
                for server in in_turn:
                    c_client.produce(server, 100, codec, value_of(100), scale)
            for server in in_turn:
                c_client.produce(server, 1000, "none", value_of(1000), scale)
                small_requests(server, scale)
                acknowledged(server, scale)
            with contextlib.ExitStack() as idle:
                for server in in_turn:
                    idle.enter_context(idle_connections(server, 200))
                for server in in_turn:
                    acknowledged(server, scale, suffix=", 200 idle connections")
            for server in in_turn:
                group_start(server, round_number)
                if server.name != "mock":
                    end_to_end(server, scale)
            in_process(ottla, round_number, scale)
            start_anew(ottla, compiled)
        for server in servers:
            server.note("RSS at the end, MB", server.rss_mb())
        report(ottla, others, rounds)
    for server in servers:
        for name, values in server.figures.items():
            results.add(name, server.name, values, name.rpartition(", ")[2])
    results.close()


# --- what is measured


def start_anew(server: Server, compiled: CompiledModules) -> None:
    """From the start of a process until clients can connect, and until its first record is acknowledged."""
    with started("ottla", [*OTTLA], environment=compiled.as_installed()) as fresh:
        first_record_acknowledged(fresh)
        fresh.note("process start to first record acknowledged, ms", (time.perf_counter() - fresh.begun_at) * 1000)
    with started("ottla", [*OTTLA], environment=compiled.of_the_standard_library()) as uncompiled:
        (ready_ms,) = uncompiled.figures["process start to ready, ms"]
        fresh.note("process start to ready, Ottla's modules not compiled, ms", ready_ms)
    for name, values in fresh.figures.items():
        server.figures.setdefault(name, []).extend(values)


def first_record_acknowledged(server: Server) -> None:
    producer = producer_for(server, "none", **{"linger.ms": 0, "enable.idempotence": False, "log_level": 0})
    producer.produce("first", b"x")
    if producer.flush(30):
        raise SystemExit("the first record was not acknowledged")


def producer_for(server: Server, codec: str, **settings: Any) -> Any:
    return Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 5,
            "enable.metrics.push": False,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            **settings,
        }
    )


def value_of(size: int) -> bytes:
    """Bytes that compress as log lines do, not as zeros."""
    line = b"".join(b"%08x-%d;" % (number * 2_654_435_761 % 2**32, number % 7) for number in range(size))
    return line[:size]


def produce(server: Server, size: int, codec: str, round_number: object, scale: float) -> None:
    count = int((1_000_000 if size == 100 else 200_000) * scale)
    topic = f"bench-{size}-{codec}-{round_number}"
    producer = producer_for(server, codec)
    producer.produce(topic, b"warm", partition=0)
    producer.flush(30)
    value, send = value_of(size), producer.produce
    cpu = server.cpu_s()
    begun = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                send(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise SystemExit(f"{server.name}: records were not delivered")
    elapsed = time.perf_counter() - begun
    label = f"produce {size} B {codec}"
    server.note(f"{label}, k records/s", count / elapsed / 1000)
    server.note(f"{label}, broker CPU s/GB", (server.cpu_s() - cpu) / (count * size) * 1e9)


def consume(server: Server, size: int, codec: str, round_number: object) -> None:
    topic = f"bench-{size}-{codec}-{round_number}"
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.metrics.push": False,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "queued.max.messages.kbytes": 262_144,
        }
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=10)
    cpu = server.cpu_s()
    begun = time.perf_counter()
    consumer.assign([partition])
    seen = 0
    while seen < end:
        # consume(n, timeout) waits to fill its n; poll and then take what is there does not.
        first = consumer.poll(1)
        seen += (first is not None) + len(consumer.consume(1000, 0))
    elapsed = time.perf_counter() - begun
    consumer.close()
    label = f"consume {size} B {codec}"
    server.note(f"{label}, k records/s", seen / elapsed / 1000)
    server.note(f"{label}, broker CPU s/GB", (server.cpu_s() - cpu) / (seen * size) * 1e9)


def acknowledged(server: Server, scale: float, *, suffix: str = "") -> None:
    """One record at a time: produce, wait for the ack."""
    producer = producer_for(server, "none", **{"linger.ms": 0})
    times = []
    for _ in range(int(2_000 * scale) + 100):
        begun = time.perf_counter()
        producer.produce("acks", b"x" * 100, partition=0)
        producer.flush(10)
        times.append(time.perf_counter() - begun)
    note_times(server, f"produce to ack{suffix}", times[100:])


def end_to_end(server: Server, scale: float) -> None:
    """One record at a time: produce, until a waiting consumer has it."""
    producer = producer_for(server, "none", **{"linger.ms": 0})
    producer.produce("e2e", b"warm", partition=0)
    producer.flush(10)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "e2e",
            "enable.auto.commit": False,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([TopicPartition("e2e", 0, 0)])
    while consumer.poll(0.5) is not None:
        pass
    times = []
    for _ in range(int(2_000 * scale) + 100):
        begun = time.perf_counter()
        producer.produce("e2e", b"x" * 100, partition=0)
        producer.poll(0)
        while consumer.poll(1) is None:
            pass
        times.append(time.perf_counter() - begun)
        producer.flush(10)
    consumer.close()
    note_times(server, "produce to waiting consumer", times[100:])


def group_start(server: Server, round_number: int) -> None:
    """From making a consumer with `subscribe` to its first record; the record is there already.

    librdkafka waits 50 ms before its second connection and, where nothing was committed, 100 ms in the classic protocol
    before it asks for the first offset: that is the client's share.
    """
    topic = f"group-{round_number}"
    producer = producer_for(server, "none")
    producer.produce(topic, b"x", partition=0)
    producer.flush(10)
    first_record(server, "group start to first record, ms", topic, f"{topic}-classic")
    if server.name == "mock":
        return
    first_record(server, "group start, KIP-848, ms", topic, f"{topic}-new", **{"group.protocol": "consumer"})
    committed = f"{topic}-committed"
    with contextlib.closing(Consumer({"bootstrap.servers": server.bootstrap, "group.id": committed})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    first_record(server, "group start, offsets committed, ms", topic, committed)
    server.note("group start, aiokafka, ms", asyncio.run(first_record_aiokafka(server, topic)))


def first_record(server: Server, label: str, topic: str, group: str, **settings: Any) -> None:
    config = {
        "bootstrap.servers": server.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.metrics.push": False,
        **settings,
    }
    begun = time.perf_counter()
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while consumer.poll(10) is None:
        pass
    server.note(label, (time.perf_counter() - begun) * 1000)
    consumer.close()


async def first_record_aiokafka(server: Server, topic: str) -> float:
    begun = time.perf_counter()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=server.bootstrap, group_id=f"{topic}-aiokafka", auto_offset_reset="earliest"
    )
    async with consumer:
        await consumer.getone()
        return (time.perf_counter() - begun) * 1000


def written(server: Server, gigabytes: float) -> None:
    """Memory before, while and after so much was written, a megabyte a request, in a topic that keeps 200 MB."""
    record = RecordData(offset=0, timestamp_ms=int(time.time() * 1000), key=None, value=value_of(1_000_000), headers=())
    records = bytes(encode_batch([record]))
    data = {"name": "written", "partition_data": [{"index": 0, "records": records}]}
    frame = headers.encode_request_frame(
        ApiKey.PRODUCE, 7, 1, "bench", {"acks": -1, "timeout_ms": 30_000, "topic_data": [data]}
    )
    producer_for(server, "none").list_topics("written", timeout=10)
    host, port = server.bootstrap.split(":")
    most = 0.0
    with socket.create_connection((host, int(port)), timeout=60) as client:
        for number in range(int(gigabytes * 1e9 / len(records))):
            client.sendall(frame)
            read_frame(client)
            if number == 100:
                server.note("RSS after 100 MB, MB", server.rss_mb())
            most = max(most, server.rss_mb())
    with contextlib.closing(Consumer({"bootstrap.servers": server.bootstrap, "group.id": "written"})) as consumer:
        start, end = consumer.get_watermark_offsets(TopicPartition("written", 0), timeout=10)
    if end != int(gigabytes * 1e9 / len(records)) or not start:
        raise SystemExit(f"{server.name}: offsets {start} to {end} are kept, wanted the last of all that was sent")
    server.note(f"RSS, the most during {gigabytes:g} GB, MB", most)
    server.note(f"RSS after {gigabytes:g} GB, MB", server.rss_mb())


def in_process(ottla: Server, round_number: int, scale: float) -> None:
    """The same broker in a thread of the client's process, as the test fixtures run it."""
    for brokers in (1, 3):
        begun = time.perf_counter()
        with EmbeddedCluster(brokers=brokers) as cluster:
            server = Server("in process", cluster.bootstrap_servers, None, ottla.figures)
            server.note(f"start of {brokers}, ms", (time.perf_counter() - begun) * 1000)
            if brokers == 1:
                produce(server, 100, "none", round_number, scale)
                consume(server, 100, "none", round_number)
                end_to_end(server, scale)


def note_times(server: Server, label: str, times: list[float]) -> None:
    ordered = sorted(times)
    server.note(f"{label}, p50 µs", ordered[len(ordered) // 2] * 1e6)
    server.note(f"{label}, p99 µs", ordered[int(len(ordered) * 0.99)] * 1e6)


def small_requests(server: Server, scale: float) -> None:
    """Produce requests of one 200-byte batch on one connection, 50 under way: the broker's CPU time per request."""
    host, port = server.bootstrap.split(":")
    record = RecordData(offset=0, timestamp_ms=int(time.time() * 1000), key=None, value=b"x" * 130, headers=())
    records = bytes(encode_batch([record]))
    body = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": "acks", "partition_data": [{"index": 0, "records": records}]}],
    }
    frame = headers.encode_request_frame(ApiKey.PRODUCE, 7, 1, "bench", body)
    count = int(20_000 * scale) // 50 * 50
    producer = producer_for(server, "none")
    producer.produce("acks", b"warm", partition=0)
    producer.flush(10)
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cpu = server.cpu_s()
        begun = time.perf_counter()
        for _ in range(count // 50):
            client.sendall(frame * 50)
            for _ in range(50):
                read_frame(client)
        elapsed = time.perf_counter() - begun
    server.note("small Produce requests, k/s", count / elapsed / 1000)
    server.note("small Produce requests, broker CPU µs each", (server.cpu_s() - cpu) / count * 1e6)


def read_frame(client: socket.socket) -> None:
    size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
    client.recv(size, socket.MSG_WAITALL)


@contextlib.contextmanager
def idle_connections(server: Server, count: int) -> Iterator[None]:
    host, port = server.bootstrap.split(":")
    before = server.rss_mb()
    with contextlib.ExitStack() as stack:
        for number in range(count):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            client.sendall(headers.encode_request_frame(ApiKey.API_VERSIONS, 2, number, "idle", {}))
            read_frame(client)
        server.note("RSS per idle connection, KB", max(server.rss_mb() - before, 0) / count * 1024)
        yield


# --- the report


def report(ottla: Server, others: list[Server], rounds: int) -> None:
    print(f"medians of {rounds} rounds; ratio = ottla / peer (for rates more is better, for CPU and times less is)")
    print(f"{'':52}{'ottla':>10}" + "".join(f"{each.name:>10}{'ratio':>8}" for each in others))
    for name in ottla.figures:
        line = f"{name:52}{ottla.median(name):10.1f}"
        for each in others:
            if name in each.figures and each.median(name):
                line += f"{each.median(name):10.1f}{ottla.median(name) / each.median(name):8.2f}"
            else:
                line += f"{'':18}"
        print(line.rstrip())


if __name__ == "__main__":
    main()
