"""How the broker's rate and memory grow: with record size, partitions, connections, members, topics, data on disk.

    python benchmarks/growth.py            some three minutes
    python benchmarks/growth.py --quick    about a minute, fewer points
    python benchmarks/growth.py --only partitions

The broker is a child process, a new one for every point of a curve, except along topics and data, which add up in one.
Memory is the resident memory of that process when the point is done, data in the page cache not counted. Where the
load is one client (group members, connections), the client is a Python process and shares the machine: there the curve
says that nothing breaks down, not how much the broker could do.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import c_client
from broker import read_frame, value_of
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from results import Results
from servers import OTTLA, Server, started

from ottla_wire.protocol import ApiKey, headers
from ottla_wire.records.record import RecordData, encode_batch

JOIN_S = READ_S = 60.0
Note = Callable[[str, float, float, str], None]
"""Takes the metric, the place on the axis, the value and its unit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer points, one round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=list(SWEEPS), nargs="*", default=list(SWEEPS))
    parser.add_argument("--results", type=Path, help="the folder for growth.jsonl")
    options = parser.parse_args()
    results = Results("growth", options.results, is_quick=options.quick)
    found: dict[tuple[str, float, str], list[float]] = {}
    for _ in range(1 if options.quick else options.rounds):
        for name in options.only:
            begun = time.perf_counter()

            def note(metric: str, x: float, value: float, unit: str, name: str = name) -> None:
                found.setdefault((f"{name}: {metric}", x, unit), []).append(value)
                print(f"{name:14}{x:>12,g}  {metric:32}{value:12,.1f} {unit}", flush=True)

            sweep, points, few = SWEEPS[name]
            sweep(few if options.quick else points, note)
            print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
    for (what, x, unit), values in found.items():
        results.add(what, "ottla", values, unit, x=x)
    results.close()


@contextlib.contextmanager
def broker(*settings: str) -> Iterator[Server]:
    command = [*OTTLA]
    for setting in settings:
        command += ["--set", setting]
    with started("ottla", command) as server:
        yield server


def create(server: Server, topics: list[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, partitions, 1) for name in topics]).values():
        created.result(60)


# --- one curve each


def record_size(points: list[float], note: Note) -> None:
    for size in points:
        with broker() as server:
            create(server, ["load"], 1)
            count = int(min(500_000, 150_000_000 / size))
            count, seconds, cpu = c_client.timed(server, "load", value_of(int(size)), count)
            note("produced", size, count * size / seconds / 1e6, "MB/s")
            note("produced records", size, count / seconds / 1000, "k records/s")
            note("broker CPU", size, cpu * 1000 / (count * size / 1e6), "ms/MB")
            note("memory", size, server.rss_mb(), "MB")


def partitions(points: list[float], note: Note) -> None:
    """One topic; each record goes to a partition at random, so that batches get small."""
    for count in points:
        with broker() as server:
            create(server, ["load"], int(count))
            sent, seconds, _ = c_client.timed(server, "load", value_of(100), 300_000, partition=c_client.ANY)
            note("produced records", count, sent / seconds / 1000, "k records/s")
            note("memory, all written", count, server.rss_mb(), "MB")
            note("consumed records", count, consumed(server, "load", int(count), sent) / 1000, "k records/s")
            note("memory, all read too", count, server.rss_mb(), "MB")


def consumed(server: Server, topic: str, partitions: int, records: int) -> float:
    """Records a second of one consumer that reads all partitions, from its first record on."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "growth",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen = len(consumer.consume(1, 30))
    begun = time.perf_counter()
    while seen < records:
        first = consumer.poll(1)
        seen += (first is not None) + len(consumer.consume(1_000, 0))
    seconds = time.perf_counter() - begun
    consumer.close()
    return records / seconds


def connections(points: list[float], note: Note) -> None:
    """So many connections, each with one small Produce request under way at any time."""
    record = RecordData(offset=0, timestamp_ms=int(time.time() * 1000), key=None, value=b"x" * 130, headers=())
    data = {"name": "load", "partition_data": [{"index": 0, "records": bytes(encode_batch([record]))}]}
    frame = headers.encode_request_frame(
        ApiKey.PRODUCE, 7, 1, "growth", {"acks": -1, "timeout_ms": 30_000, "topic_data": [data]}
    )
    for count in points:
        with broker() as server, contextlib.ExitStack() as stack:
            create(server, ["load"], 1)
            host, port = server.bootstrap.split(":")
            clients = [socket.create_connection((host, int(port)), timeout=30) for _ in range(int(count))]
            for client in clients:
                stack.enter_context(client)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector = stack.enter_context(selectors.DefaultSelector())
            for client in clients:
                selector.register(client, selectors.EVENT_READ)
                client.sendall(frame)
            cpu, answered, begun = server.cpu_s(), 0, time.perf_counter()
            while answered < 10_000:
                for key, _ in selector.select(30):
                    client = key.fileobj  # type: ignore[assignment]
                    read_frame(client)
                    client.sendall(frame)
                    answered += 1
            seconds = time.perf_counter() - begun
            note("requests", count, answered / seconds / 1000, "k requests/s")
            note("broker CPU", count, (server.cpu_s() - cpu) / answered * 1e6, "µs/request")
            note("memory", count, server.rss_mb(), "MB")


def members(points: list[float], note: Note) -> None:
    """One group on 50 partitions: until all members have theirs, and the rate of all together."""
    settings = {
        "group.id": "growth",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 2,
        "enable.metrics.push": False,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    for count in points:
        with broker() as server, contextlib.ExitStack() as stack:
            create(server, ["load"], 50)
            begun = time.perf_counter()
            group = [Consumer({"bootstrap.servers": server.bootstrap, **settings}) for _ in range(int(count))]
            for member in group:
                stack.callback(member.close)
                member.subscribe(["load"])
            while not is_shared(group):
                for member in group:
                    member.consume(1, 0)
                time.sleep(0.001)
                if time.perf_counter() - begun > JOIN_S:
                    raise SystemExit(f"{count:g} members did not share 50 partitions within {JOIN_S:g} s")
            note("all have their partitions", count, time.perf_counter() - begun, "s")
            # Nothing is read while it is written: the members share the machine with the broker.
            for member in group:
                member.pause(member.assignment())
            sent, _, _ = c_client.timed(server, "load", value_of(100), 300_000, partition=c_client.ANY)
            for member in group:
                member.resume(member.assignment())
            begun, seen = time.perf_counter(), 0
            while seen < sent:
                seen += sum(len(member.consume(1_000, 0)) for member in group)
                if time.perf_counter() - begun > READ_S:
                    raise SystemExit(f"{count:g} members read {seen:,} of {sent:,} records within {READ_S:g} s")
            note("consumed records", count, seen / (time.perf_counter() - begun) / 1000, "k records/s")
            note("memory", count, server.rss_mb(), "MB")


def is_shared(group: list[Consumer]) -> bool:
    owned = [len(member.assignment()) for member in group]
    return sum(owned) == 50 and all(owned)


def topics(points: list[float], note: Note) -> None:
    """Topics add up in one broker."""
    there = 0
    with broker() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        for count in points:
            begun = time.perf_counter()
            while there < count:
                more = min(100, int(count) - there)
                create(server, [f"t{number}" for number in range(there, there + more)], 1)
                there += more
            if count > 1:
                note("created", count, (time.perf_counter() - begun) * 1000 / count, "ms/topic")
            begun = time.perf_counter()
            assert len(admin.list_topics(timeout=30).topics) >= there
            note("metadata of all", count, (time.perf_counter() - begun) * 1000, "ms")
            sent, seconds, _ = c_client.timed(server, "t0", value_of(100), 200_000)
            note("produced records", count, sent / seconds / 1000, "k records/s")
            note("memory", count, server.rss_mb(), "MB")


def data(points: list[float], note: Note) -> None:
    """Gigabytes on disk, in segments of 100 MB of one partition, added up in one broker."""
    there = 0.0
    with broker("log.segment.bytes=100000000") as server:
        create(server, ["load"], 1)
        for gigabytes in points:
            count = int((gigabytes - there) * 1e9 / 10_000)
            count, seconds, _ = c_client.timed(server, "load", value_of(10_000), count)
            there = gigabytes
            note("produced", gigabytes, count * 10_000 / seconds / 1e6, "MB/s")
            times = sorted(first_by_time(server) for _ in range(21))
            note("offset found by time", gigabytes, times[10] * 1000, "ms")
            note("memory", gigabytes, server.rss_mb(), "MB")


def first_by_time(server: Server) -> float:
    """Seconds that the broker takes to find the first record of the last minute."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "growth", "enable.metrics.push": False})
    since_ms = int(time.time() * 1000) - 60_000
    consumer.get_watermark_offsets(TopicPartition("load", 0), timeout=10)
    begun = time.perf_counter()
    consumer.offsets_for_times([TopicPartition("load", 0, since_ms)], timeout=10)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


SWEEPS: dict[str, tuple[Callable[[list[float], Note], None], list[float], list[float]]] = {
    "record size": (record_size, [10, 100, 1_000, 10_000, 100_000, 1_000_000], [10, 1_000, 100_000]),
    "partitions": (partitions, [1, 3, 10, 30, 100, 300, 1_000], [1, 30, 1_000]),
    "connections": (connections, [1, 5, 20, 50, 100, 200, 500], [1, 50, 500]),
    "group members": (members, [1, 2, 5, 10, 25, 50], [1, 10, 50]),
    "topics": (topics, [1, 10, 100, 500, 1_000, 2_000], [1, 100, 2_000]),
    "data": (data, [0.01, 0.1, 0.3, 1, 2], [0.01, 0.1, 0.3]),
}
"""Name → measuring function, its points, and the points of the quick mode."""


if __name__ == "__main__":
    main()
