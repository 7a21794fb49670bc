"""Members of a real client come and go while records arrive, and brokers are three: nothing is lost, order is kept."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import count
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from broker_embedded.cluster import EmbeddedCluster

PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range", "session.timeout.ms": 2000, "heartbeat.interval.ms": 50},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 2000,
        "heartbeat.interval.ms": 50,
    },
    "KIP-848": {"group.protocol": "consumer"},
}


class Worker(threading.Thread):
    """A member in its own thread: handles records and commits what it handled, at the latest when a partition goes."""

    def __init__(self, servers: str, topic: str, settings: dict[str, Any], handled: dict[int, list[int]]) -> None:
        super().__init__()
        self.handled = handled
        self.failure: BaseException | None = None
        self.should_stop = threading.Event()
        self.runs: dict[int, int] = {}
        """partition -> the last offset handled since it was assigned."""
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                **settings,
            }
        )
        self.consumer.subscribe([topic], on_revoke=self.on_revoke, on_lost=lambda *_: self.runs.clear())
        self.start()

    def run(self) -> None:
        try:
            for turn in count():
                if self.should_stop.is_set():
                    break
                self.work()
                if turn % 5 == 0:
                    self.commit()
            self.commit()
        except BaseException as error:
            self.failure = error
        finally:
            self.consumer.close()

    def stop(self) -> None:
        self.should_stop.set()
        self.join(60)
        assert not self.is_alive(), "a member that leaves is let go"
        if self.failure is not None:
            raise self.failure

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()
        for partition in partitions:
            self.runs.pop(partition.partition, None)

    def work(self) -> None:
        batch = self.consumer.consume(50, 0.02)
        # What was fetched before a partition went may be returned by the very call that ran `on_revoke`.
        owned = {each.partition for each in self.consumer.assignment()}
        for message in batch:
            if message.error() or message.partition() not in owned:
                continue
            partition, offset = message.partition(), message.offset()
            previous = self.runs.get(partition)
            assert previous is None or offset == previous + 1, "within an assignment nothing is skipped or repeated"
            self.runs[partition] = offset
            self.handled[partition].append(int(message.value()))
            self.consumer.store_offsets(message)

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException:
            pass  # nothing to commit, or a rebalance was faster: the next owner repeats the records


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_no_record_is_lost_while_members_come_and_go(protocol: str, until):
    random = Random(848)
    handled: dict[int, list[int]] = defaultdict(list)
    # A member that is closed while it waits in a join (or for the answer to its first heartbeat: librdkafka does not
    # say then that it leaves) is missed only when its session ends, as by Apache Kafka: after 45 s by default.
    config = {
        "group.min.session.timeout.ms": 1000,
        "group.consumer.heartbeat.interval.ms": 50,
        "group.consumer.session.timeout.ms": 2000,
    }
    with EmbeddedCluster(brokers=3, config=config) as cluster:
        cluster.create_topic("t", partitions=6)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

        def start() -> Worker:
            return Worker(cluster.bootstrap_servers, "t", PROTOCOLS[protocol], handled)

        workers = [start()]
        operator = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "t"})
        produced = 0
        try:
            ends = time.monotonic() + 3
            while time.monotonic() < ends:
                for _ in range(20):
                    producer.produce("t", str(produced), partition=produced % 6)
                    produced += 1
                producer.poll(0.02)
                action = random.random()
                if action < 0.10 and len(workers) < 4:
                    workers.append(start())
                elif action < 0.17 and len(workers) > 1:
                    workers.pop(random.randrange(len(workers))).stop()
            assert producer.flush(20) == 0

            def committed() -> list[int]:
                asked = [TopicPartition("t", number) for number in range(6)]
                return [each.offset for each in operator.committed(asked, timeout=20)]

            everything = [len(range(number, produced, 6)) for number in range(6)]
            until(lambda: committed() == everything or any(worker.failure for worker in workers), seconds=60)
        finally:
            for worker in workers:
                worker.stop()
            operator.close()
    for partition in range(6):
        values = handled[partition]
        assert set(values) == set(range(partition, produced, 6)), "nothing is lost"
        firsts = list(dict.fromkeys(values))
        assert firsts == sorted(firsts), "each record is first handled in the order of its partition"
