"""A leader that has to add its partition waits for the markers of the transaction before, as Kafka does since 4.0.

franz-go comes again only after five seconds when it is told CONCURRENT_TRANSACTIONS. A marker of the transaction before
may also arrive while the coordinator is being asked: that is no reason to refuse the next one (KAFKA-18575).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

from transaction_wire import WireProducer, markers_in
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode

SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "broker.session.timeout.ms": 120_000,
}


@contextmanager
def markers_held_up(*, add_for_ms: int) -> Iterator[tuple[EmbeddedCluster, WireProducer, int]]:
    """A producer whose first transaction is decided, while its marker cannot reach the other broker; and a partition at
    the coordinator's own."""
    settings = SETTINGS | {"add.partitions.to.txn.retry.backoff.max.ms": add_for_ms}
    with EmbeddedCluster(2, config=settings) as cluster, ExitStack() as open_clients:
        cluster.create_topic("t", partitions=2)
        connections = [WireClient(each, timeout_s=60) for each in cluster.bootstrap_servers.split(",")]
        for each in connections:
            open_clients.callback(each.close)
        producer = WireProducer(connections[0], "id", version=2)
        coordinator = cluster.wait_for_leader("__transaction_state")
        here, there = connections[coordinator - 1], connections[2 - coordinator]
        (near, far) = (0, 1) if cluster.leader("t", 0) == coordinator else (1, 0)
        producer.client = here
        producer.init()
        producer.client = there
        producer.send("t", b"before", partition=far)
        cluster.links.cut(1, 2)
        producer.client = here
        producer.commit()
        yield cluster, producer, near


def test_a_produce_right_after_a_commit_waits_for_the_markers() -> None:
    with markers_held_up(add_for_ms=60_000) as (cluster, producer, near), ThreadPoolExecutor(1) as other_thread:
        produced = other_thread.submit(producer.produce, "t", b"after", partition=near)
        asking = WireClient(cluster.bootstrap_servers, timeout_s=60)
        for _ in range(50):  # meanwhile the broker has read the produce and would have refused it
            asking.call(ApiKey.METADATA, 9, {"topics": [], "allow_auto_topic_creation": False})
        asking.close()
        cluster.links.heal()
        assert produced.result(60) is ErrorCode.NONE


def test_it_is_told_to_come_again_when_the_markers_take_too_long() -> None:
    with markers_held_up(add_for_ms=0) as (_, producer, near):
        assert producer.produce("t", b"after", partition=near) is ErrorCode.CONCURRENT_TRANSACTIONS


@contextmanager
def marker_while_the_coordinator_is_asked(*, add_for_ms: int) -> Iterator[Future[ErrorCode]]:
    """The next transaction's first produce: its leader asks before the last one's marker has come, and the question
    arrives after it."""
    with (
        asked_over_a_slow_link(add_for_ms=add_for_ms) as (cluster, producer, far, here, there),
        ThreadPoolExecutor(1) as other_thread,
        closing(WireClient(cluster.bootstrap_servers.split(",")[there - 1], timeout_s=60)) as asking,
    ):
        produced = other_thread.submit(producer.produce, "t", b"after", partition=far)
        for _ in range(50):  # meanwhile the broker has read the produce and asked
            asking.call(ApiKey.METADATA, 9, {"topics": [], "allow_auto_topic_creation": False})
        cluster.links.heal(here, there)
        yield produced
        assert [name for *_, name in markers_in(asking, "t", partition=far)] == ["COMMIT"]


@contextmanager
def asked_over_a_slow_link(*, add_for_ms: int) -> Iterator[tuple[EmbeddedCluster, WireProducer, int, int, int]]:
    """A producer whose first transaction is decided at node `here`, while its marker cannot reach node `there`, whose
    own questions take a second."""
    settings = SETTINGS | {"add.partitions.to.txn.retry.backoff.max.ms": add_for_ms}
    with EmbeddedCluster(2, config=settings) as cluster, ExitStack() as open_clients:
        cluster.create_topic("t", partitions=2)
        connections = {}
        for node, address in enumerate(cluster.bootstrap_servers.split(","), start=1):
            connections[node] = WireClient(address, timeout_s=60)
            open_clients.callback(connections[node].close)
        producer = WireProducer(connections[1], "id", version=2)
        here = cluster.wait_for_leader("__transaction_state")
        there = 3 - here
        far = 0 if cluster.leader("t", 0) == there else 1
        producer.client = connections[here]
        producer.init()
        producer.client = connections[there]
        producer.send("t", b"before", partition=far)
        cluster.links.cut(here, there, one_way=True)
        cluster.links.slow(there, here, delay_ms=1_000, one_way=True)
        producer.client = connections[here]
        producer.commit()
        producer.client = connections[there]
        yield cluster, producer, far, here, there


def test_a_marker_of_the_last_transaction_does_not_refuse_the_next_one() -> None:
    with marker_while_the_coordinator_is_asked(add_for_ms=60_000) as produced:
        assert produced.result(60) is ErrorCode.NONE


def test_without_time_to_ask_again_the_client_is_told_to_come_again() -> None:
    with marker_while_the_coordinator_is_asked(add_for_ms=0) as produced:
        assert produced.result(60) is ErrorCode.CONCURRENT_TRANSACTIONS
