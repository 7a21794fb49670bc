"""Jobs per second of a queue beside its peers, on one broker and in one run.

    python benchmarks/queues.py [--broker embedded|kafka] [--jobs 20000]

| row | what |
|---|---|
| `@app.queue`, empty handler | this SDK, threads |
| `Queue` | this SDK, a loop that accepts each job |
| share consumer of confluent-kafka | librdkafka's preview, explicit acknowledgements, a loop that accepts each |
| plain consumer of confluent-kafka | a consumer group on the same topic, which acknowledges nothing |
| `kill -9` | from the kill of a member that holds jobs until another member has one of them, ms |

Each takes the same jobs of 100 bytes from one partition. Rates are of wall time: the broker works for each too. On a
noisy machine only the ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, Producer, Queue, TopicSpec
from ottla.admin import Admin

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


@contextmanager
def broker(kind: str) -> Iterator[str]:
    """Yield the address of a broker of its own."""
    if kind == "embedded":
        with EmbeddedCluster() as cluster:
            yield cluster.bootstrap_servers
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


def measured(name: str, take: Callable[[str, str, int], float], servers: str, jobs: int) -> None:
    try:
        rate = take(servers, filled(servers, jobs), jobs)
    except Exception as error:  # a peer that is not installed, or does not work on this broker
        print(f"{name:45} {type(error).__name__}: {error}"[:120], flush=True)
        return
    print(f"{name:45} {rate:10,.0f} jobs/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--jobs", type=int, default=20_000)
    options = parser.parse_args()
    with broker(options.broker) as servers:
        measured("@app.queue, empty handler", of_app, servers, options.jobs)
        measured("Queue", of_queue, servers, options.jobs)
        measured("share consumer of confluent-kafka (preview)", of_preview, servers, options.jobs)
        measured("plain consumer of confluent-kafka", of_plain, servers, options.jobs)
        print(f"{'kill -9 until another member has a job':45} {after_a_kill(servers):10,.0f} ms")


if __name__ == "__main__":
    main()
