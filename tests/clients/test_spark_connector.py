"""Spark's own Kafka connector makes a round on three brokers, one of which is killed half way.

It must be of Spark's exact version, so it runs with the newest PySpark that has one on Maven Central
(`tools/spark_connector.py`). Run by `tools/run clients`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import spark_connector
from confluent_kafka import Consumer, Producer, TopicPartition
from foreign_client import PROGRAMS, Program

from broker_embedded.cluster import EmbeddedCluster
from ottla.spark import JavaMissing, find_java

PARTITIONS = range(3)
ROWS_A_BATCH = 60
WAIT_S = 240.0

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def command() -> Sequence[str]:
    try:
        find_java()
        version = spark_connector.connector_version()
        python = spark_connector.environment(version)
        jars = spark_connector.jars(version, python.parent.parent / "connector")
    except JavaMissing as error:
        pytest.skip(f"needs Java: {error}")
    except spark_connector.Unavailable as error:
        pytest.skip(f"needs {error}")
    return [str(python), str(PROGRAMS / "spark" / "client.py"), ",".join(map(str, jars))]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"transaction.state.log.num.partitions": 1, "transaction.state.log.replication.factor": 3}
    with EmbeddedCluster(3, config=settings) as running:
        for topic in ("t", "out"):
            running.create_topic(topic, partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
        yield running


@pytest.fixture
def send(cluster: EmbeddedCluster) -> Callable[[int, int], None]:
    """Records `first` to `last` - 1 in a transaction, after as many that are aborted."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "filler"})
    producer.init_transactions(60)

    def send(first: int, last: int) -> None:
        for end, name in ((producer.abort_transaction, "aborted"), (producer.commit_transaction, "committed")):
            producer.begin_transaction()
            for n in range(first, last):
                number = str(n).encode()
                value = b"%s-%d" % (name.encode(), n)
                producer.produce("t", value, b"k%d" % n, partition=n % 3, headers=[("n", number)])
            assert producer.flush(60) == 0
            end(60)

    return send


def kill_leader(cluster: EmbeddedCluster, partition: int) -> None:
    """Returns when every partition of both topics has a leader again."""
    victim = cluster.leader("t", partition)
    cluster.kill(victim)
    for topic in ("t", "out"):
        for each in PARTITIONS:
            assert cluster.wait_for_leader(topic, each) != victim


def check_rows(rows: list[list[str]], count: int) -> None:
    """Each committed record once, and nothing else."""
    assert len(rows) == count
    assert {value for *_, value in rows} == {f"committed-{n}" for n in range(count)}
    assert len({(partition, offset) for partition, offset, *_ in rows}) == count
    for partition, _, key, header, value in rows:
        n = value.removeprefix("committed-")
        assert (partition, key, header) == (str(int(n) % 3), f"k{n}", n)


def everything_in(cluster: EmbeddedCluster, topic: str) -> list[str]:
    found = []
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, each, 0) for each in PARTITIONS])
        at_end: set[int] = set()
        while at_end != set(PARTITIONS):
            record = consumer.poll(60)
            assert record is not None, "nothing came for 60 s"
            if record.error():
                at_end.add(record.partition())
            else:
                found.append(record.value().decode())
    return found


def test_a_batch_reads_what_is_committed_once_though_a_leader_is_killed_half_way(
    command: Sequence[str], cluster: EmbeddedCluster, send: Callable[[int, int], None]
) -> None:
    send(0, 300)
    send(300, 600)
    with Program([*command, "batch", cluster.bootstrap_servers, "t"]) as program:
        program.wait_until(lambda: bool(program.said("half")), "the first row", WAIT_S)
        read_first = int(program.said("half")[0][0])
        kill_leader(cluster, (read_first + 1) % 3)
        program.tell()
        program.wait_until(lambda: bool(program.said("closed")), "the end", WAIT_S)
        program.wait()
    check_rows(program.said("row"), 600)


def test_a_stream_goes_on_where_it_was_after_a_leader_and_its_driver_were_killed(
    command: Sequence[str], cluster: EmbeddedCluster, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    arguments = [*command, "stream", cluster.bootstrap_servers, "t", "out", str(tmp_path), str(ROWS_A_BATCH)]
    send(0, 450)
    with Program(arguments) as first:

        def have_done(batches: int) -> Callable[[], bool]:
            """Each query that many since now."""
            names = ("files", "topic")
            before = {name: sum(query == name for query, _ in first.said("batch")) for name in names}
            return lambda: all(
                sum(query == name for query, _ in first.said("batch")) >= before[name] + batches for name in names
            )

        first.wait_until(have_done(2), "two batches of each query", WAIT_S)
        kill_leader(cluster, 0)
        is_going_on = have_done(2)
        send(450, 1_500)
        first.wait_until(is_going_on, "two batches more", WAIT_S)
        os.kill(int(first.said("jvm")[0][0]), signal.SIGKILL)
        first.kill()
    send(1_500, 1_600)
    with Program(arguments) as second:
        second.wait_until(lambda: bool(second.said("jvm")), "the queries to start", WAIT_S)
        second.tell()
        second.wait_until(lambda: bool(second.said("closed")), "the end", WAIT_S)
        second.wait()
    rows = second.said("row")
    check_rows(rows, 1_600)
    copied = everything_in(cluster, "out")
    assert set(copied) == {f"{partition}:{offset}:{value}" for partition, offset, _, _, value in rows}
    assert len(copied) - 1_600 <= ROWS_A_BATCH, "only the batch that the driver was killed in is written again"
