"""What messages that expire, priorities and delayed messages cost, and what they keep.

    python benchmarks/messaging.py                      # all parts, against an embedded broker in a process of its own
    python benchmarks/messaging.py --part urgent --records 1000000
    python benchmarks/messaging.py --part unused --against ../before/src

`unused`: sends and handlers that use none of it, in turns with an older checkout of `src` (--against). `schedule`: how
fast messages are scheduled beside plain sends, how fast they are dispatched once due, and how late they come.
`urgent`: how long an urgent record waits while `--records` bulk records do, and which share bulk keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from results import FOLDER, Results
from servers import OTTLA, started

VALUE = b"x" * 100
WORK_S = 0.00002
"""What a record takes: a handler that is faster than its client has no backlog to choose from."""
HERE = Path(__file__).resolve().parent
PARTS = ("unused", "schedule", "urgent")


class Shown(Results):
    """Results that are printed as they come."""

    def add(self, what: str, contender: str, runs: Any, unit: str, **more: Any) -> Any:
        result = super().add(what, contender, runs, unit, **more)
        print(
            f"{what:36} {contender:14} {statistics.median(runs):12,.3f} {unit:12} {[round(run, 3) for run in runs]}",
            flush=True,
        )
        return result


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# What is not used: in a process of its own, so that another checkout can be measured by the same code


def one_unused(records: int) -> dict[str, float]:
    """Seconds per record of `send` into a client that is its own broker, and of a handler's delivery."""
    from random import Random

    from ottla import App, Producer
    from ottla.consumer.model.run import Run
    from ottla.records import Record, TopicPartition

    found: dict[str, float] = {}
    producer: Any = Producer("localhost:9092", settings={"test.mock.num.brokers": 1, "buffer.memory": 1 << 30})
    for _ in range(1_000):
        producer.send("t", VALUE)
    producer.flush()
    times = []
    for _ in range(records // 500):
        started_s = time.perf_counter()
        for _ in range(500):
            producer.send("t", VALUE)
        times.append((time.perf_counter() - started_s) / 500)
        producer.flush()
    found["send"] = quantile(times, 0.1)  # others are busy on this machine too: what it costs without them
    producer.close()

    app = App("g")

    @app.handler("t")
    def handle(value: bytes) -> None:
        return

    invoker = app.routes[0].invoker([], {})
    random = Random(1)
    for name, headers in (("handle", None), ("handle, 3 headers", [("a", b"1"), ("b", b"2"), ("c", b"3")])):
        batch = [Record("t", 0, offset, 0, None, VALUE, headers, None, VALUE) for offset in range(128)]  # type: ignore[arg-type]
        random.shuffle(batch)
        times = []
        for _ in range(records // 128):
            run = Run(
                topic_partition=TopicPartition("t", 0), epoch=1, route="g", records=batch, attempt=1, started_ms=0
            )
            started_s = time.perf_counter()
            invoker.deliver(run)
            times.append((time.perf_counter() - started_s) / 128)
        found[name] = quantile(times, 0.1)
    return found


def unused(results: Results, *, records: int, runs: int, against: str | None) -> None:
    places = {"now": str(HERE.parent / "src")} | ({} if against is None else {"before": str(Path(against).resolve())})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in places}
    for _ in range(runs):
        for name, place in places.items():
            command = [sys.executable, __file__, "--one-unused", "--records", str(records)]
            environment = {**os.environ, "PYTHONPATH": place}
            said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            found[name].append(json.loads(said.splitlines()[-1]))
    for what in found["now"][0]:
        for name, each in found.items():
            results.add(f"not used: {what}", name, [run[what] * 1e6 for run in each], "µs")


# Delayed messages


def schedule(results: Results, bootstrap: str, *, records: int, runs: int) -> None:
    from ottla import Producer
    from ottla.sync.admin.topics import create_topic
    from ottla.sync.serve.scheduler import Scheduler

    name = f"bench-{uuid.uuid4().hex[:8]}"
    target = f"{name}-target"
    create_topic(bootstrap, target, partitions=4)
    scheduler = Scheduler(bootstrap, name=name, assigned=range(64))
    scheduler.start()
    producer: Any = Producer(bootstrap, schedule=name)
    with producer:
        for kind, later in (("send", {}), ("schedule", {"deliver_after": 3_600.0})):
            rates = []
            for _ in range(runs):
                started_s = time.perf_counter()
                for _ in range(records):
                    producer.send(target, VALUE, **later)
                producer.flush()
                rates.append(records / (time.perf_counter() - started_s))
            results.add("producing", kind, rates, "records/s")
        for kind, later in (("send_many", {}), ("schedule, send_many", {"deliver_after": 3_600.0})):
            rates = []
            for _ in range(runs):
                started_s = time.perf_counter()
                producer.send_many(target, ((VALUE,) for _ in range(records)), **later).result()
                rates.append(records / (time.perf_counter() - started_s))
            results.add("producing", kind, rates, "records/s")
        rates = []
        for _ in range(runs):
            before = scheduler.delivered
            for _ in range(records):
                producer.send(target, VALUE, deliver_after=0)
            producer.flush()
            started_s = time.perf_counter()
            while scheduler.delivered < before + records:
                scheduler.tick()
            rates.append(records / (time.perf_counter() - started_s))
        results.add("dispatch of what is due", "one scheduler", rates, "records/s", goal=50_000)
        results.add("lateness", "p99", [lateness(scheduler, producer, bootstrap, f"{name}-late")], "s", goal=0.3)
    scheduler.close()


def lateness(scheduler: Any, producer: Any, bootstrap: str, topic: str) -> float:
    """Sends 2,000 messages that fall due over ten seconds; the 99th percentile of how late the topic had them."""
    from ottla.sync.admin.topic_reader import TopicReader
    from ottla.sync.admin.topics import create_topic

    create_topic(bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    for number in range(2_000):
        producer.send(topic, VALUE, deliver_after=1 + number / 200)
    producer.flush()
    time.sleep(15)
    scheduler.stop()
    thread.join()
    with TopicReader(bootstrap, topic) as reader:
        late = [
            (record.timestamp_ms - int(record.header_text("ottla-scheduled-due") or 0)) / 1_000
            for record in reader.stream_to_end()
        ]
    assert len(late) == 2_000, len(late)
    assert min(late) >= 0
    return quantile(late, 0.99)


# Priorities


def urgent(results: Results, bootstrap: str, *, records: int, runs: int) -> None:
    waits, shares, rates = [], [], {"priorities": [], "the same topics, plain": []}  # type: ignore[var-annotated]
    for _ in range(runs):
        waits.append(overtaking(bootstrap, records))
        rate, share = draining(bootstrap, records, has_priorities=True)
        shares.append(share)
        rates["priorities"].append(rate)
        rates["the same topics, plain"].append(draining(bootstrap, records, has_priorities=False)[0])
    results.add("urgent beside a backlog", "p99", [wait * 1_000 for wait in waits], "ms", goal=100)
    results.add("bulk while urgent is saturated", "share of records", shares, "", goal=0.04)
    for name, found in rates.items():
        results.add("draining the backlog", name, found, "records/s")


def overtaking(bootstrap: str, records: int) -> float:
    """The 99th percentile of how long one of 200 urgent records waits, from its send, while bulk records do."""
    from ottla import App, Priorities, Producer
    from ottla.sync.admin.topics import create_topic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    orders = Priorities(name, ("urgent", "normal", "bulk"), at_least_every=(1, 4, 20))
    for topic in orders.topics:
        create_topic(bootstrap, topic, partitions=2)
    with Producer(bootstrap) as producer:
        producer.send_many(orders.topic("bulk"), ((VALUE,) for _ in range(records))).result()
    waits: list[float] = []
    handled = bytearray()
    app = App(name, bootstrap_servers=bootstrap)
    urgent_topic = orders.topic("urgent")

    @app.handler(orders)
    def handle(record: Any) -> None:
        if record.topic == urgent_topic:
            waits.append(time.time() - float(record.value))
        else:
            handled.append(1)
            until_s = time.perf_counter() + WORK_S
            while time.perf_counter() < until_s:
                pass

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False})
    thread.start()
    while len(handled) < 1_000:
        time.sleep(0.001)
    with Producer(bootstrap, settings={"linger.ms": 0}) as producer:
        for _ in range(200):
            producer.send(orders, b"%f" % time.time(), priority="urgent")
            time.sleep(0.005)
    while len(waits) < 200:
        time.sleep(0.01)
    ran_out = len(handled) == records
    app.stop()
    thread.join()
    if ran_out:
        raise SystemExit("bulk ran out before the urgent records did: give more --records")
    return quantile(waits, 0.99)


def draining(bootstrap: str, records: int, *, has_priorities: bool) -> tuple[float, float]:
    """(records per second, share of bulk while urgent records are there) of a backlog in six partitions."""
    from ottla import App, Priorities, Producer
    from ottla.sync.admin.topics import create_topic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    priorities = Priorities(name, ("urgent", "normal", "bulk"), at_least_every=(1, 4, 20))
    topics = priorities.topics
    declared = (priorities,) if has_priorities else topics
    for topic in topics:
        create_topic(bootstrap, topic, partitions=6 // len(topics))
    each = records // len(topics)
    with Producer(bootstrap) as producer:
        for topic in topics:
            producer.send_many(topic, ((VALUE,) for _ in range(each))).result()
    total = each * len(topics)
    seen = bytearray()
    done = threading.Event()
    app = App(name, bootstrap_servers=bootstrap)

    kinds = {topic: number for number, topic in enumerate(topics)}

    @app.handler(*declared)
    def handle(record: Any) -> None:
        seen.append(kinds[record.topic])
        until_s = time.perf_counter() + WORK_S
        while time.perf_counter() < until_s:
            pass
        if len(seen) == total:
            done.set()

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False})
    thread.start()
    while not seen:
        time.sleep(0.001)
    started_s = time.perf_counter()
    assert done.wait(600)
    rate = total / (time.perf_counter() - started_s)
    app.stop()
    thread.join()
    last_urgent = seen.rindex(0)
    return rate, seen[last_urgent // 10 : 9 * last_urgent // 10].count(2) / (0.8 * last_urgent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="Only this part; repeatable.")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--against", help="A folder `src` of an older checkout.")
    parser.add_argument("--bootstrap", help="A Kafka that runs; without it an embedded broker is started.")
    parser.add_argument("--one-unused", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_unused:
        print(json.dumps(one_unused(options.records)))
        return
    results = Shown("messaging", FOLDER)
    parts = options.part or PARTS
    if "unused" in parts:
        unused(results, records=options.records, runs=options.runs, against=options.against)
    if {"schedule", "urgent"} & set(parts):
        if options.bootstrap:
            run_parts(parts, results, options.bootstrap, options)
        else:
            with started("embedded broker", [*OTTLA, "--port", "0"]) as server:
                run_parts(parts, results, server.bootstrap, options)
    results.close()


def run_parts(parts: Any, results: Results, bootstrap: str, options: argparse.Namespace) -> None:
    if "schedule" in parts:
        schedule(results, bootstrap, records=options.records, runs=options.runs)
    if "urgent" in parts:
        urgent(results, bootstrap, records=options.records, runs=options.runs)


if __name__ == "__main__":
    main()
