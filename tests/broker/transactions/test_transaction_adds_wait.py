"""A leader that has to add its partition waits for the markers of the transaction before, as Kafka does since 4.0.

franz-go comes again only after five seconds when it is told CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from transaction_wire import WireProducer
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode


@contextmanager
def markers_held_up(*, add_for_ms: int) -> Iterator[tuple[EmbeddedCluster, WireProducer, int]]:
    """A producer whose first transaction is decided, while its marker cannot reach the other broker; and a partition at
    the coordinator's own."""
    settings = {
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "broker.session.timeout.ms": 120_000,
        "add.partitions.to.txn.retry.backoff.max.ms": add_for_ms,
    }
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
