"""Jobs per second of a queue beside its peers, on one broker and in one run.

    python benchmarks/queues.py [--broker embedded|kafka] [--jobs 50000] [--rounds 3] [--quick] [--results FOLDER]

| row | what |
|---|---|
| `@app.queue`, empty handler | this SDK, in threads and on asyncio |
| `Queue` | this SDK, a loop that accepts each job |
| share consumer of confluent-kafka | librdkafka's preview, explicit acknowledgements, a loop that accepts each |
| plain consumer of confluent-kafka | a consumer group on the same topic, which acknowledges nothing |
| 1, 10 and 100 members | `Queue`s of one process that share a partition of the embedded broker, and of Apache Kafka's |
| `kill -9` | from the kill of a member that holds jobs until another member has one of them, ms |

Each takes the same jobs of 100 bytes from one partition of a broker in a process of its own. CPU is the client's
process alone, by job: on a noisy machine it means more than the rate. Contenders take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from results import Results
from servers import OTTLA, started

from ottla import App, Producer, Queue, TopicSpec
from ottla.admin import Admin, UnknownGroup

CONCURRENCY = 64
SIZE_BYTES = 100
HOLDER = """
import sys
from ottla import Queue
with Queue(sys.argv[2], group=sys.argv[3], bootstrap_servers=sys.argv[1], concurrency=10) as queue:
    held = [queue.take(60) for _ in range(10)]
    print("held", flush=True)
    queue.take(600)
"""


MEMBERS = (1, 10, 100)
MEMBERS_WITHIN_S = 60.0
BY_MEMBERS = "members of one partition, the same client: {}"
BROKERS = {"embedded": "ottla", "kafka": "Apache Kafka"}
THREADS, ASYNCIO, LOOP = "an empty handler, in threads", "an empty handler, on asyncio", "a loop that accepts each"
PREVIEW, PLAIN = "share consumer of confluent-kafka (preview)", "consumer of confluent-kafka, settles nothing"


@contextmanager
def broker(kind: str) -> Iterator[str]:
    """Yield the address of a broker of its own."""
    if kind == "embedded":
        with started("embedded broker", [*OTTLA, "--port", "0"]) as server:
            yield server.bootstrap
        return
    from apache_kafka import ApacheKafka

    quick = {"group.share.heartbeat.interval.ms": 1000, "group.share.min.heartbeat.interval.ms": 1000}
    with ApacheKafka(1, quick) as kafka:
        yield kafka.bootstrap_servers


def filled(servers: str, jobs: int) -> str:
    """Make a topic with so many jobs in one partition."""
    topic = f"jobs-{uuid4().hex[:8]}"
    with Admin(servers) as admin:
        one = TopicSpec(partitions=1)
        admin.create_topics({topic: one, f"{topic}.dead": one})
    with Producer(servers) as producer:
        for _ in range(jobs):
            producer.send(topic, b"x" * SIZE_BYTES)
    return topic


def of_app(servers: str, topic: str, jobs: int) -> float:
    app = App(f"{topic}-app", bootstrap_servers=servers, dead_letter_topic=f"{topic}.dead")
    times: list[float] = []

    @app.queue(topic, concurrency=CONCURRENCY)
    def on_job(value: bytes) -> None:
        times.append(time.perf_counter())
        if len(times) == jobs:
            app.stop()

    app.run(handle_signals=False)
    return jobs / (times[-1] - times[0])


def of_async_app(servers: str, topic: str, jobs: int) -> float:
    app = App(f"{topic}-async", bootstrap_servers=servers, dead_letter_topic=f"{topic}.dead")
    times: list[float] = []

    @app.queue(topic, concurrency=CONCURRENCY)
    async def on_job(value: bytes) -> None:
        times.append(time.perf_counter())
        if len(times) == jobs:
            app.stop()

    asyncio.run(app.serve(handle_signals=False))
    return jobs / (times[-1] - times[0])


def of_queue(servers: str, topic: str, jobs: int) -> float:
    with Queue(topic, group=f"{topic}-queue", bootstrap_servers=servers, concurrency=CONCURRENCY) as queue:
        first = 0.0
        for count, job in enumerate(queue, start=1):
            first = first or time.perf_counter()
            job.accept()
            if count == jobs:
                break
        return jobs / (time.perf_counter() - first)


def of_preview(servers: str, topic: str, jobs: int) -> float:
    from confluent_kafka import ShareConsumer

    group = f"{topic}-preview"
    with Queue(topic, group=group, bootstrap_servers=servers):  # sets where the group starts
        pass
    consumer = ShareConsumer(
        {"bootstrap.servers": servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    first, count = 0.0, 0
    while count < jobs:
        for message in consumer.poll(1.0):
            first = first or time.perf_counter()
            consumer.acknowledge(message)
            count += 1
        consumer.commit_sync()  # as the others, whose jobs are settled at the broker
    taken = time.perf_counter() - first
    consumer.close()
    return jobs / taken


def of_plain(servers: str, topic: str, jobs: int) -> float:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"{topic}-plain", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    first, count = 0.0, 0
    while count < jobs:
        for _ in consumer.consume(500, 1.0):
            first = first or time.perf_counter()
            count += 1
    taken = time.perf_counter() - first
    consumer.close()
    return jobs / taken


def after_a_kill(servers: str) -> float:
    """Return the milliseconds from a member's death until another member has one of its jobs."""
    topic = filled(servers, 10)
    group = f"{topic}-kill"
    command = [sys.executable, "-c", HOLDER, servers, topic, group]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with Queue(topic, group=group, bootstrap_servers=servers, concurrency=10) as queue:
        assert queue.take(3.0) is None
        killed = time.perf_counter()
        threading.Thread(target=holder.kill).start()
        job = queue.take(60.0)
        taken = time.perf_counter() - killed
        assert job is not None
        job.accept()
    holder.wait()
    return taken * 1_000


def of_members(servers: str, members: int, jobs: int) -> float:
    """Return the jobs per second that so many members of one partition accept, once all have it."""
    topic = filled(servers, 0)
    group = f"{topic}-members"
    accepted = [0] * members
    stopping = threading.Event()

    def work(number: int) -> None:
        with Queue(topic, group=group, bootstrap_servers=servers, concurrency=CONCURRENCY) as queue:
            while not stopping.is_set():
                while (job := queue.take(0.2)) is not None:
                    job.accept()
                    accepted[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    try:
        with Admin(servers) as admin:
            until_s = time.perf_counter() + MEMBERS_WITHIN_S
            while not are_assigned(admin, group, members):
                if time.perf_counter() > until_s:
                    raise TimeoutError(f"not all of {members} members had the partition in {MEMBERS_WITHIN_S:g} s")
                time.sleep(0.2)
        began_s = time.perf_counter()
        with Producer(servers) as producer:
            for _ in range(jobs):
                producer.send(topic, b"x" * SIZE_BYTES)
        while sum(accepted) < jobs:
            time.sleep(0.005)
        return jobs / (time.perf_counter() - began_s)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def are_assigned(admin: Admin, group: str, members: int) -> bool:
    try:
        (found,) = admin.describe_groups(group)
    except UnknownGroup:
        return False
    return sum(bool(each.partitions) for each in found.members or ()) == members


def on_both(results: Results, jobs: int, rounds: int) -> None:
    """One broker after the other, and the other way round in the next round."""
    from apache_kafka import Unavailable

    rates: dict[tuple[int, str], list[float]] = {(count, kind): [] for count in MEMBERS for kind in BROKERS}
    for number in range(rounds):
        for kind in list(BROKERS)[:: 1 if number % 2 == 0 else -1]:
            try:
                with broker(kind) as servers:
                    of_members(servers, 1, jobs)  # a JVM needs a while to be fast
                    for count in MEMBERS:
                        rates[count, kind].append(of_members(servers, count, jobs))
                        print(
                            f"{count:3} members, {BROKERS[kind]:14} {rates[count, kind][-1]:10,.0f} jobs/s", flush=True
                        )
            except Unavailable as error:
                results.problem(BY_MEMBERS.format(MEMBERS[0]), BROKERS[kind], str(error))
    for (count, kind), found in rates.items():
        results.add(BY_MEMBERS.format(count), BROKERS[kind], found, "jobs/s")


CONTENDERS: dict[str, tuple[str, Callable[[str, str, int], float]]] = {
    THREADS: ("ottla", of_app),
    ASYNCIO: ("ottla", of_async_app),
    LOOP: ("ottla", of_queue),
    PREVIEW: (PREVIEW, of_preview),
    PLAIN: (PLAIN, of_plain),
}


def one_round(servers: str, jobs: int, rates: dict[str, list[float]], cpu_us: dict[str, list[float]]) -> None:
    for name, (_, take) in CONTENDERS.items():
        topic = filled(servers, jobs)
        began_s = time.process_time()
        try:
            rate = take(servers, topic, jobs)
        except Exception as error:  # a peer that is not installed, or does not work on this broker
            print(f"{name:45} {type(error).__name__}: {error}"[:120], flush=True)
            continue
        cpu_us[name].append((time.process_time() - began_s) / jobs * 1e6)
        rates[name].append(rate)
        print(f"{name:45} {rate:10,.0f} jobs/s  {cpu_us[name][-1]:6.1f} us of CPU by job", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for queues.jsonl")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.rounds = 20_000, 1
    results = Results("queues", options.results, is_quick=options.quick)
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    cpu_us: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with broker(options.broker) as servers:
        for _ in range(options.rounds):
            one_round(servers, options.jobs, rates, cpu_us)
        kills = [after_a_kill(servers) for _ in range(options.rounds)]
    for what in (THREADS, ASYNCIO, LOOP):
        for contender, name in (("ottla", what), (PREVIEW, PREVIEW), (PLAIN, PLAIN)):
            results.add(f"{what}", contender, rates[name], "jobs/s")
    for what in (THREADS, ASYNCIO, LOOP):
        results.add(f"{what}: CPU by job", "ottla", cpu_us[what], "µs")
        results.add(f"{what}: CPU by job", PREVIEW, cpu_us[PREVIEW], "µs")
    on_both(results, options.jobs, options.rounds)
    results.add("kill -9 until another member has a job", "ottla", kills, "ms")
    results.close()
    print(f"{'kill -9 until another member has a job':45} {max(kills):10,.0f} ms at most")


if __name__ == "__main__":
    main()
