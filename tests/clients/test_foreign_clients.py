"""Clients of other languages make a full round on three brokers, one of which is killed half way.

Only kafka-python's is part of `make test`; `tools/run clients` runs all that the machine and its registries have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pytest
from apache_kafka import Unavailable
from confluent_kafka import Consumer, Producer, TopicPartition
from foreign_client import CLIENTS, KAFKA_PYTHON, WAIT_S, ForeignClient, Program
from transaction_wire import read_committed
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, Str
from ottla.columnar import read
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.record import RecordData, decode_batch

PARTITIONS = range(3)

pytestmark = pytest.mark.timeout(600)


def cases(wanted: list[tuple[ForeignClient, str]]) -> list[object]:
    """One case per client and group protocol; those that need more than PyPI gives are for `tools/run clients`."""
    return [
        pytest.param(
            client,
            protocol,
            id=f"{client.name}-{protocol}",
            marks=[] if client is KAFKA_PYTHON else [pytest.mark.clients],
        )
        for client, protocol in wanted
    ]


ALL = list(CLIENTS.values())


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 3,
        "group.consumer.min.session.timeout.ms": 6_000,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 500,
    }
    with EmbeddedCluster(3, config=settings) as running:
        yield running


@contextmanager
def run(client: ForeignClient, *arguments: str) -> Iterator[Program]:
    try:
        program = client.run(*arguments)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with program:
        yield program


@contextmanager
def leader(cluster: EmbeddedCluster, topic: str, partition: int) -> Iterator[WireClient]:
    number = cluster.broker_ids.index(cluster.wait_for_leader(topic, partition))
    wire = WireClient(cluster.bootstrap_servers.split(",")[number], timeout_s=30)
    yield wire
    wire.close()


def kill_leader(cluster: EmbeddedCluster, topic: str) -> None:
    """Kill who leads partition 0, and one of three partitions of t with it."""
    kill(cluster, cluster.leader(topic))


def kill(cluster: EmbeddedCluster, victim: int) -> None:
    """Returns when every partition of t has a leader again."""
    cluster.kill(victim)
    for each in PARTITIONS:
        assert cluster.wait_for_leader("t", each) != victim


def stored(cluster: EmbeddedCluster, topic: str, partition: int) -> tuple[list[RecordData], set[int]]:
    """Every record of a partition, and the compressions of its batches."""
    records: list[RecordData] = []
    codecs: set[int] = set()
    with leader(cluster, topic, partition) as wire:
        offset = 0
        while data := bytes(wire.fetch(topic, offset, partition=partition).records):
            for position, header in iter_batches(data):
                records += decode_batch(data, position)
                codecs.add(header.compression)
                offset = header.next_offset
    return records, codecs


@pytest.mark.parametrize(("client", "protocol"), cases([(each, "produce") for each in ALL]))
def test_what_was_acknowledged_is_there_once_after_a_leader_was_killed(
    cluster: EmbeddedCluster, client: ForeignClient, protocol: str
) -> None:
    if not client.creates_topics:
        cluster.create_topic("t", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    with run(client, protocol, cluster.bootstrap_servers, "t") as program:
        assert program.wait_for("created") == ["3"]
        program.wait_for("half")
        kill_leader(cluster, "t")
        program.tell()
        sent = int(program.wait_for("produced")[0])
        program.wait()
    found, codecs = zip(*(stored(cluster, "t", each) for each in PARTITIONS), strict=True)
    numbers = [[int(record.value.split(b":")[0]) for record in records] for records in found]  # type: ignore[union-attr]
    assert set(chain(*numbers)) == set(range(sent))
    if client.writes_once:
        assert sum(map(len, numbers)) == sent
        assert all(each == sorted(each) for each in numbers), "and in the order in which it was sent"
    for record in chain(*found):
        n = record.value.split(b":")[0]  # type: ignore[union-attr]
        headers = [("n", n)] if client.has_headers else []
        assert (record.key, record.value, record.headers) == (b"k" + n, n + b":" + b"v" * 200, headers)
    assert len(set.union(*codecs)) == len(client.codecs)


def produce(cluster: EmbeddedCluster, client: ForeignClient, first: int, last: int) -> None:
    """Records first to last - 1, in batches of every compression that the client can read."""
    share = (last - first) // len(client.codecs) + 1
    for index, codec in enumerate(client.codecs):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec})
        for n in range(first + index * share, min(last, first + (index + 1) * share)):
            value = b"%d:%s" % (n, b"v" * 200)
            producer.produce("t", value, b"k%d" % n, partition=n % 3, headers=[("n", str(n).encode())])
        assert producer.flush(60) == 0


def numbers_of(*programs: Program) -> set[int]:
    return {int(number) for program in programs for _, _, _, _, number in program.said("record")}


GROUPS = [(client, protocol) for client in ALL for protocol in client.protocols]


@pytest.mark.complete
@pytest.mark.parametrize(("client", "protocol"), cases(GROUPS))
def test_a_group_goes_on_when_a_member_and_its_coordinator_are_killed(
    cluster: EmbeddedCluster, client: ForeignClient, protocol: str
) -> None:
    cluster.create_topic("t", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    produce(cluster, client, 0, 300)
    arguments = ("consume", cluster.bootstrap_servers, "t", "g", protocol)
    with run(client, *arguments) as first, ExitStack() as later:
        first.wait_for("record")
        second = later.enter_context(run(client, *arguments))
        second.wait_until(lambda: any(any(each) for each in second.said("assigned")), "an assignment")
        cluster.wait_for_group("g", members=2, timeout_s=60)
        before = len(second.said("record"))
        first.kill()
        committed = {int(partition): int(offset) for partition, offset in first.said("committed")}
        produce(cluster, client, 300, 450)
        kill_leader(cluster, "__consumer_offsets")
        produce(cluster, client, 450, 600)
        second.wait_until(lambda: numbers_of(first, second) == set(range(600)), "all records")
        cluster.wait_for_group("g", members=1, timeout_s=60)
        second.tell()
        second.wait_for("closed")
        second.wait()
    cluster.wait_for_group("g", members=0)
    for partition, offset, key, header, number in first.said("record") + second.said("record"):
        assert (key, header, int(partition)) == (f"k{number}", number, int(number) % 3)
        assert int(offset) == int(number) // 3
    assert {int(number) for *_, number in second.said("record")} >= set(range(300, 600))
    again = [(p, o) for p, o, *_ in second.said("record")[before:] if int(o) < committed.get(int(p), 0)]
    assert again == [], "what the first had committed is not handled again"
    assert committed_offsets(cluster, "g") == [200, 200, 200]


@pytest.mark.clients
@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_members_of_columns_share_its_group_and_hand_over_without_loss(cluster: EmbeddedCluster, protocol: str) -> None:
    cluster.create_topic("t", partitions=3, replication_factor=3)
    settings: dict[str, Any] = {"group.protocol": "consumer"}
    if protocol != "consumer":
        settings = {"partition.assignment.strategy": "range" if protocol == "classic" else "cooperative-sticky"}
    of_columns: list[int] = []

    @contextmanager
    def columns() -> Iterator[App]:
        app = App("g", bootstrap_servers=cluster.bootstrap_servers, settings=settings, drain_s=5)

        @app.handler("t", value=Str(), columns=True)
        def take(batch: pa.RecordBatch) -> None:
            of_columns.extend(int(value.split(":")[0]) for value in batch.column("value").to_pylist())

        thread = threading.Thread(target=lambda: app.run(handle_signals=False))
        thread.start()
        try:
            yield app
        finally:
            app.stop()
            thread.join(WAIT_S)
        assert not thread.is_alive()

    def wait_for_all(*programs: Program, below: int) -> None:
        def found() -> set[int]:
            return numbers_of(*programs) | set(of_columns)

        wait_until(lambda: found() == set(range(below)), lambda: f"missing: {sorted(set(range(below)) - found())}")

    arguments = ("consume", cluster.bootstrap_servers, "t", "g", protocol)
    java = CLIENTS["java"]
    with ExitStack() as later, run(java, *arguments) as first:
        send(cluster, range(150))
        wait_for_all(first, below=150)
        app = later.enter_context(columns())
        wait_until(lambda: bool(app.health().partitions), lambda: "no partition is assigned")
        cluster.wait_for_group("g", members=2, timeout_s=60)
        before = len(of_columns), len(first.said("record"))
        send(cluster, range(150, 300))
        wait_for_all(first, below=300)
        assert len(of_columns) > before[0], "both take part"
        assert len(first.said("record")) > before[1], "both take part"
        first.tell()
        first.wait_for("closed")
        send(cluster, range(300, 450))
        wait_for_all(first, below=450)
        second = later.enter_context(run(java, *arguments))
        second.wait_until(lambda: any(any(each) for each in second.said("assigned")), "an assignment")
        send(cluster, range(450, 600))
        wait_for_all(first, second, below=600)
        app.stop()
        cluster.wait_for_group("g", members=1, timeout_s=60)
        send(cluster, range(600, 750))
        wait_for_all(first, second, below=750)
        second.tell()
        second.wait_for("closed")
        second.wait()
    assert committed_offsets(cluster, "g") == [250, 250, 250]


def send(cluster: EmbeddedCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in numbers:
        producer.produce("t", f"{number}:v", f"k{number}", number % 3, headers={"n": str(number)})
    assert producer.flush(WAIT_S) == 0


def committed_offsets(cluster: EmbeddedCluster, group: str) -> list[int]:
    asking = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    try:
        return [each.offset for each in asking.committed([TopicPartition("t", each) for each in PARTITIONS], 60)]
    finally:
        asking.close()


@pytest.mark.parametrize(("client", "protocol"), cases([(each, "transact") for each in ALL if each.has_transactions]))
def test_only_committed_transactions_are_read_after_leader_and_producer_were_killed(
    cluster: EmbeddedCluster, client: ForeignClient, protocol: str
) -> None:
    cluster.create_topic("t", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    with run(client, protocol, cluster.bootstrap_servers, "t", "id", "first") as first:
        first.wait_for("half")
        coordinators = {cluster.leader("__transaction_state")}
        if client.commits_offsets_in_transactions:
            coordinators.add(cluster.leader("__consumer_offsets"))
        others = set(cluster.broker_ids) - coordinators
        kill(cluster, min(coordinators if client.finds_new_coordinators_in_transactions else others))
        first.tell()
        first.wait_for("open")
        first.kill()
    with run(client, protocol, cluster.bootstrap_servers, "t", "id", "second") as second:
        second.wait_for("closed")
        second.wait()
    wanted = [
        [f"{name}-{n}" for name in ("t0", "t2", "t4", "taken-over") for n in range(9) if n % 3 == partition]
        for partition in PARTITIONS
    ]
    if client.leaves_out_what_was_aborted:
        assert sorted(value for (value,) in second.said("value")) == sorted(chain(*wanted))
    for partition in PARTITIONS:
        with leader(cluster, "t", partition) as wire:
            assert read_committed(wire, "t", partition=partition) == [each.encode() for each in wanted[partition]]
    if client.commits_offsets_in_transactions:
        assert committed_offsets(cluster, "id-group")[0] == 5


CHAIN = ("t", "t1", "t2")
RECORDS = 600


@pytest.mark.parametrize(("client", "protocol"), cases([(CLIENTS["franz-go"], p) for p in ("classic", "consumer")]))
def test_a_chain_of_short_transactions_moves_each_record_once(
    cluster: EmbeddedCluster, client: ForeignClient, protocol: str
) -> None:
    """Transactions of a few records at full speed: each begins while the markers of the one before are written."""
    for topic in CHAIN:
        cluster.create_topic(topic, partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    produce(cluster, KAFKA_PYTHON, 0, RECORDS)
    with ExitStack() as running:
        stages = [
            running.enter_context(run(client, "chain", cluster.bootstrap_servers, a, b, f"{b}-{member}", protocol))
            for a, b in pairwise(CHAIN)
            for member in range(2)
        ]
        for members in (stages[:2], stages[2:]):
            wait_until(lambda m=members: moved_by(m) >= RECORDS, lambda m=members: f"{moved_by(m)} moved")
        for stage in stages:
            stage.tell()
            stage.wait_for("closed")
            stage.wait()
        refused = [line for stage in stages for line in stage.said("failed")]
        assert not [line for line in refused if "ABORTABLE" in line[0]], refused
    for topic in CHAIN[1:]:
        found = read(topic, bootstrap_servers=cluster.bootstrap_servers, columns=["key"]).read_all()
        assert sorted(found.column("key").to_pylist()) == sorted(b"k%d" % n for n in range(RECORDS))


def moved_by(programs: list[Program]) -> int:
    return sum(int(number) for program in programs for (number,) in program.said("moved"))


def wait_until(condition: Callable[[], bool], found: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, found()
        time.sleep(0.05)
