"""A replicating cluster: how fast it starts, how long a failover takes, what replication costs.

    python benchmarks/cluster.py            about three minutes
    python benchmarks/cluster.py --quick    about half a minute, figures are rough

Three brokers in this process, and for the rates three in a child process, beside Apache Kafka's three where Java and
Maven can be had. A failover is the time from the kill of a leader to the next record acknowledged with acks=all, as one
confluent-kafka producer sees it; `min.insync.replicas` is 2, every topic has three replicas.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from results import Results

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.cluster import SEVERAL_NODES
from broker_embedded.common.broker_settings import BROKER_SETTINGS

HERE = Path(__file__).resolve().parent
KAFKAS_TIMES = {name: BROKER_SETTINGS[name].default for name in SEVERAL_NODES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer records")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the usual records")
    parser.add_argument("--results", type=Path, help="the folder for cluster.jsonl")
    options = parser.parse_args()
    rounds, scale = (2, 0.1) if options.quick else (options.rounds, options.scale)
    results = Results("cluster", options.results, is_quick=options.quick)
    starts(rounds, results)
    failovers("the fixtures' times", rounds, {}, results)
    if not options.quick:
        failovers("Kafka's times", 1 if rounds < 5 else 2, KAFKAS_TIMES, results)
    latency(scale, results)
    rates(rounds, scale, results)
    results.close()


def say(results: Results, label: str, values: list[float], unit: str, *, contender: str = "ottla") -> None:
    results.add(label, contender, values, unit)
    label = label if contender == "ottla" else f"{label}: {contender}"
    print(f"{label:68}{statistics.median(values):10.1f} {unit}  ({min(values):.1f} to {max(values):.1f})", flush=True)


def starts(rounds: int, results: Results) -> None:
    for brokers in (1, 3):
        with EmbeddedCluster(brokers):
            pass  # what is compiled once per process
        took = []
        for _ in range(3 * rounds):
            begun = time.perf_counter()
            with EmbeddedCluster(brokers):
                took.append((time.perf_counter() - begun) * 1000)
        say(results, f"start of {brokers} in process", took, "ms")


def producer_for(bootstrap: str, **settings: Any) -> Any:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            "enable.metrics.push": False,
            **settings,
        }
    )


def failovers(label: str, rounds: int, config: dict[str, object], results: Results) -> None:
    """The leader alone, and the leader that is the active controller as well."""
    took: dict[str, list[float]] = {"leader": [], "leader and controller": []}
    with EmbeddedCluster(3, config=config) as kafka:
        kafka.create_topic("t", partitions=6, replication_factor=3, config={"min.insync.replicas": 2})
        for _ in range(rounds):
            for kind, times in took.items():
                controller = kafka.controller_id
                partition = next(
                    number for number in range(6) if (kafka.leader("t", number) == controller) == (kind != "leader")
                )
                producer = producer_for(kafka.bootstrap_servers)
                producer.produce("t", b"before", partition=partition)
                producer.flush(60)
                victim = kafka.leader("t", partition)
                begun = time.perf_counter()
                kafka.kill(victim)
                producer.produce("t", b"after", partition=partition)
                if producer.flush(120):
                    raise SystemExit("the record after the kill was not acknowledged")
                times.append((time.perf_counter() - begun) * 1000)
                kafka.start_broker(victim)
                for number in range(6):
                    kafka.wait_for_isr("t", number)
                rebalance(kafka)
    for kind, times in took.items():
        say(results, f"failover, {label}: kill of the {kind} to the next ack", times, "ms")


def rebalance(kafka: EmbeddedCluster) -> None:
    """Every partition back to its preferred leader, so that each broker leads two."""
    from confluent_kafka import ElectionType, TopicPartition

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", number) for number in range(6)]).result(30)
    for number in range(6):
        preferred = kafka.facts().partitions["t", number].replicas[0]
        kafka.wait_for_leader("t", number, leader=preferred)


def latency(scale: float, results: Results) -> None:
    with EmbeddedCluster(3) as kafka:
        kafka.create_topic("t", replication_factor=3, config={"min.insync.replicas": 2})
        producer = producer_for(kafka.bootstrap_servers)
        took = []
        for _ in range(int(2_000 * scale) + 100):
            begun = time.perf_counter()
            producer.produce("t", b"x" * 100)
            producer.flush(10)
            took.append((time.perf_counter() - begun) * 1000)
    say(results, "acks=all, three replicas, in process: one record to its ack", took[100:], "ms")


@contextlib.contextmanager
def ottla() -> Iterator[str]:
    command = [sys.executable, "-m", "broker_embedded", "--brokers", "3", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().removeprefix("ready bootstrap=")
    finally:
        process.terminate()
        process.wait(30)


def rates(rounds: int, scale: float, results: Results) -> None:
    """Records with acks=all to a topic of three partitions with three replicas each; the two take turns."""
    sys.path.insert(0, str(HERE.parent / "tools"))
    from apache_kafka import ApacheKafka, Unavailable

    with contextlib.ExitStack() as stack:
        clusters = {"ottla": stack.enter_context(ottla())}
        try:
            clusters["kafka"] = stack.enter_context(ApacheKafka(3)).bootstrap_servers
        except Unavailable as reason:
            print(f"Apache Kafka is left out: {reason}")
            results.problem("acks=all, three replicas", "kafka", str(reason))
        for bootstrap in clusters.values():
            replicated_rate(bootstrap, 100, 0.1)
        for size in (100, 1000):
            found: dict[str, list[float]] = {name: [] for name in clusters}
            for _ in range(rounds):
                for name, bootstrap in clusters.items():
                    found[name].append(replicated_rate(bootstrap, size, scale))
            for name, values in found.items():
                say(results, f"acks=all, three replicas, {size} B", values, "k records/s", contender=name)
            if "kafka" in found:
                ratio = statistics.median(found["ottla"]) / statistics.median(found["kafka"])
                print(f"{f'ratio ottla / Apache Kafka, {size} B':68}{ratio:10.2f}", flush=True)


def replicated_rate(bootstrap: str, size: int, scale: float) -> float:
    """Thousands of records per second; topics are new, so that nobody's page cache is warmer."""
    topic = f"rate-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(topic, num_partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(60)
    count = int((500_000 if size == 100 else 100_000) * scale)
    producer = producer_for(bootstrap, **{"linger.ms": 5, "queue.buffering.max.messages": 2_000_000})
    for partition in range(3):
        producer.produce(topic, b"warm", partition=partition)
    producer.flush(60)
    value = (b"%08x-log line;" * size)[:size]
    begun = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % 3)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(300):
        raise SystemExit("records were not delivered")
    return count / (time.perf_counter() - begun) / 1000


if __name__ == "__main__":
    main()
