"""From topic to topic: `exactly_once=` beside the same handler at least once, and beside Quix Streams.

    python benchmarks/exactly_once_cost.py [--records 100000] [--rounds 5] [--results bench-results]
    python benchmarks/exactly_once_cost.py --kafka          with Apache Kafka, where its packages can be had

Each contender reads the same topic of four partitions and writes each record to a topic of its own. Time counts from
the first record that is handled until the group has committed all. The at-least-once handler returns what it sends, so
its offsets follow the acknowledgements. Quix Streams takes part where it is installed (`benchmarks/peers-quix.txt`).
A member commits the runs of all its partitions with one producer. What that saves is measured beside a producer for
each of four partitions, which commit the same records at the same time: the CPU time of client and broker.
Medians of rounds; within a round all contenders take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import servers
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from goals_of_handlers import AT_LEAST_ONCE, QUIX
from peer_pythons import QUIX as QUIX_PACKAGE
from peer_pythons import how_to_install, is_installed
from quix_exactly_once import QuixRun
from results import Results, Shown
from tables import beside_table

from ottla import App, CommitPolicy, ExactlyOnce, Out, Producer, configure_logging

PARTITIONS = 4
VALUE = b"x" * 100
OF_A_RUN = 512
"""Records of a partition in one transaction, where producers are compared."""
RUNS = 20
TRANSACTIONS = "transactions of four partitions, CPU of client and broker"
ONE_EACH = "a producer for each partition"
Contender = Callable[["Bench", str, str], float]


class Bench:
    """The broker, the topic that is read, and how far a group has come in it."""

    def __init__(self, bootstrap: str, records: int, *, partitions: int = PARTITIONS) -> None:
        """`records` are to be written into the topic, which is empty still."""
        self.bootstrap, self.records, self.partitions = bootstrap, records, partitions
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.source = self.topic("source")

    def fill(self) -> None:
        with Producer(self.bootstrap) as producer:
            for partition in range(self.partitions):
                count = self.records // self.partitions
                producer.send_many(self.source, ((VALUE, None, (), partition) for _ in range(count)))

    def topic(self, name: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        for future in self._admin.create_topics([NewTopic(topic, self.partitions, 1)]).values():
            future.result(30)
        return topic

    def wait(self, group: str) -> float:
        """When the group had committed everything, by the performance counter. Offsets count the records, for the
        source has no transactions.
        """
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(self.source, number) for number in range(self.partitions)]
        give_up_s = time.monotonic() + 300
        while sum(max(0, place.offset) for place in consumer.committed(places, 30)) < self.records:
            assert time.monotonic() < give_up_s, f"{group} does not come to the end"
            time.sleep(0.01)
        ended_s = time.perf_counter()
        consumer.close()
        return ended_s


def ottla(*, exactly: bool, is_async: bool) -> Contender:
    def run(bench: Bench, group: str, target: str) -> float:
        app = App(group, bootstrap_servers=bench.bootstrap, commit=CommitPolicy(every_s=0.05))
        began: list[float] = []
        if exactly and is_async:

            @app.handler(bench.source, exactly_once=ExactlyOnce())
            async def handle_async_exactly(value: bytes, out: Out) -> None:
                _ = began or began.append(time.perf_counter())
                out.send(target, value)

        elif exactly:

            @app.handler(bench.source, exactly_once=ExactlyOnce())
            def handle_exactly(value: bytes, out: Out) -> None:
                _ = began or began.append(time.perf_counter())
                out.send(target, value)

        elif is_async:
            outgoing = app.async_producer()

            @app.handler(bench.source)
            async def handle_async(value: bytes) -> Any:
                _ = began or began.append(time.perf_counter())
                return outgoing.send(target, value)

        else:
            producer = app.producer()

            @app.handler(bench.source)
            def handle(value: bytes) -> Any:
                _ = began or began.append(time.perf_counter())
                return producer.send(target, value)

        def serve() -> None:
            if is_async:
                asyncio.run(app.serve())
            else:
                app.run(handle_signals=False)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        took_s = bench.wait(group) - began[0]
        app.stop()
        thread.join(60)
        return took_s

    return run


def quix(bench: Bench, group: str, target: str) -> float:
    run = QuixRun(bench.bootstrap, group, bench.source, target, bench.records)
    took_s = bench.wait(group) - run.began_s
    run.cpu_s()
    return took_s


def commit_runs(producer: Producer, bench: Bench, target: str, partitions: list[int], member: Any) -> None:
    """`RUNS` transactions, each with a run of each of these partitions and its offset."""
    records = [(VALUE,)] * (OF_A_RUN * len(partitions))
    for number in range(1, RUNS + 1):
        with producer.transaction() as transaction:
            producer.send_many(target, records)
            offsets = {(bench.source, partition): number for partition in partitions}
            transaction.send_offsets(offsets, member)


def producers_cost(bench: Bench, server: servers.Server, rounds: int) -> dict[str, list[float]]:
    """CPU seconds per record, by how many producers a member has."""
    found: dict[str, list[float]] = {}
    every = list(range(bench.partitions))
    settings = {"bootstrap.servers": bench.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([bench.source])
    with ExitStack() as stack:
        stack.callback(consumer.close)
        while consumer.poll(1.0) is None:
            pass
        member, target = consumer.consumer_group_metadata(), bench.topic("target")
        for name, shares in (("ottla", [every]), (ONE_EACH, [[partition] for partition in every])):
            mine = [
                stack.enter_context(Producer(bench.bootstrap, settings={"transactional.id": uuid.uuid4().hex}))
                for _ in shares
            ]
            for number in range(rounds + 1):
                began_s = time.process_time() + server.cpu_s()
                with ThreadPoolExecutor(len(mine)) as pool:
                    list(pool.map(lambda one, share: commit_runs(one, bench, target, share, member), mine, shares))
                took_s = time.process_time() + server.cpu_s() - began_s
                if number:  # the first round warms up
                    found.setdefault(name, []).append(took_s / (RUNS * OF_A_RUN * bench.partitions))
    return found


def contenders(results: Results) -> dict[str, Contender]:
    found: dict[str, Contender] = {
        "threads, at least once": ottla(exactly=False, is_async=False),
        "threads, exactly once": ottla(exactly=True, is_async=False),
        "asyncio, at least once": ottla(exactly=False, is_async=True),
        "asyncio, exactly once": ottla(exactly=True, is_async=True),
    }
    if is_installed(QUIX_PACKAGE):
        found[QUIX] = quix
    else:
        results.problem("threads, exactly once", QUIX, how_to_install(QUIX_PACKAGE))
    return found


def measure(records: int, rounds: int, results: Results, *, with_kafka: bool) -> dict[str, list[float]]:
    """Records per second, round after round. Writes what producers cost."""
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        if with_kafka:
            (server,) = servers.peers(["kafka"], stack)
        else:
            server = stack.enter_context(servers.started("ottla", [*servers.OTTLA]))
        bench = Bench(server.bootstrap, records - records % PARTITIONS)
        bench.fill()
        write_producers(results, producers_cost(bench, server, rounds))
        all_of_them = contenders(results)
        for number in range(rounds + 1):
            for name, run in all_of_them.items():
                took_s = run(bench, uuid.uuid4().hex, bench.topic("target"))
                if number:  # the first round warms up
                    rates.setdefault(name, []).append(bench.records / took_s)
    return rates


def write(results: Results, rates: dict[str, list[float]]) -> None:
    for shell in ("threads", "asyncio"):
        what = f"{shell}, exactly once"
        results.add(what, "ottla", rates[what], "records/s")
        results.add(what, AT_LEAST_ONCE, rates[f"{shell}, at least once"], "records/s")
    results.add("threads, exactly once", QUIX, rates.get(QUIX, []), "records/s")


def write_producers(results: Results, costs: dict[str, list[float]]) -> None:
    for name, each in costs.items():
        results.add(TRANSACTIONS, name, [cost_s * 1e6 for cost_s in each], "µs per record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as the broker")
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for exactly_once.jsonl")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.records, arguments.rounds = 20_000, 1
    configure_logging(level="error")
    results = Shown("exactly_once", arguments.results, is_quick=arguments.quick)
    write(results, measure(arguments.records, arguments.rounds, results, with_kafka=arguments.kafka))
    results.close()
    print("\n".join(("", *beside_table(results.part()))))


if __name__ == "__main__":
    main()
