"""A follower's fetch is what moves the high watermark, and what waits for that may append at once, to any partition."""

from __future__ import annotations

from contextlib import closing

from transaction_wire import WireProducer, find_coordinator
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster


def test_a_follower_learns_at_once_what_was_appended_because_it_fetched() -> None:
    """The coordinator's record is replicated, and then the batch appended that waited for it: within one fetch, which
    may have looked at the batch's partition before."""
    settings = {
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 2,
        "replica.fetch.wait.max.ms": 100_000,  # who is not woken comes back after the client has given up
    }
    with EmbeddedCluster(2, config=settings) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        with closing(WireClient(addresses[0], timeout_s=60)) as any_broker:
            find_coordinator(any_broker, "any")
        coordinator = cluster.wait_for_leader("__transaction_state")
        cluster.create_topic("t", partitions=6, replication_factor=2)
        led_there = [partition for partition in range(6) if cluster.leader("t", partition) == coordinator]
        with closing(WireClient(addresses[coordinator - 1], timeout_s=60)) as client:
            for number in range(8):
                producer = WireProducer(client, f"id-{number}", version=2).init()
                for partition in led_there:
                    producer.send("t", b"x", partition=partition)
                producer.commit()
