"""Short transactions, one right behind the other (transaction.version 2): EndTxn is answered before its markers are
written, so the next transaction's first batches meet the markers of the last one at every partition (KIP-890).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest
from transaction_wire import WireProducer, find_coordinator, read_committed
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ErrorCode

PARTITIONS = 3
PRODUCERS = 6
TRANSACTIONS = 12
GROUP = 0
TAKEN_LATER = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {
        "transaction.state.log.num.partitions": 1,  # one coordinator for all, so that questions wait for each other
        "transaction.state.log.replication.factor": 3,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": 3,
    }
    with EmbeddedCluster(3, config=settings) as running:
        yield running


class Chain:
    """One producer that speaks to each broker over a connection of its own, as clients do."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, name: str) -> None:
        self._open = ExitStack()
        self.by_node = {}
        for node, address in enumerate(cluster.bootstrap_servers.split(","), start=1):
            self.by_node[node] = WireClient(address, timeout_s=60)
            self._open.callback(self.by_node[node].close)
        self.topic = topic
        self.group = f"{name}-group"
        self.leaders = [cluster.leader(topic, partition) for partition in range(PARTITIONS)]
        self.producer = WireProducer(self.by_node[1], name, version=2)
        self.coordinator = find_coordinator(self.by_node[1], name).node_id
        self.group_coordinator = find_coordinator(self.by_node[1], self.group, GROUP).node_id

    def close(self) -> None:
        self._open.close()

    def run(self) -> None:
        """Every third transaction is aborted. Each has a record in each partition, and an offset."""
        self.producer.client = self.by_node[self.coordinator]
        self.producer.init()
        for number in range(TRANSACTIONS):
            value = b"%s %d" % (self.producer.transactional_id.encode(), number)
            for partition, leader in enumerate(self.leaders):
                self._until_taken(leader, partial(self.producer.produce, self.topic, value, partition=partition))
            offsets = partial(self.producer.commit_offset, self.group, self.topic, number)
            self._until_taken(self.group_coordinator, offsets)
            self._until_taken(self.coordinator, partial(self.producer.end, commit=is_committed(number)))

    def _until_taken(self, node: int, ask: Callable[[], ErrorCode]) -> None:
        self.producer.client = self.by_node[node]
        error = ask()
        while error is TAKEN_LATER:
            error = ask()
        assert error is ErrorCode.NONE


def is_committed(number: int) -> bool:
    return number % 3 != 2


@pytest.mark.representative("at once")
@pytest.mark.parametrize("delay_ms", [0, 20], ids=["at once", "questions arrive after the markers"])
def test_the_next_transaction_never_fails_for_the_markers_of_the_last(cluster: EmbeddedCluster, delay_ms: int) -> None:
    topic = f"behind-{delay_ms}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    chains = [Chain(cluster, topic, f"{topic}-{number}") for number in range(PRODUCERS)]
    coordinator = chains[0].coordinator
    for node in {1, 2, 3} - {coordinator}:
        cluster.links.slow(node, coordinator, delay_ms=delay_ms, one_way=True)
    with ExitStack() as stack:
        for chain in chains:
            stack.callback(chain.close)
        with ThreadPoolExecutor(PRODUCERS) as threads:
            for done in [threads.submit(chain.run) for chain in chains]:
                done.result(100)
        expected = {
            b"%s %d" % (chain.producer.transactional_id.encode(), number)
            for chain in chains
            for number in range(TRANSACTIONS)
            if is_committed(number)
        }
        for partition, leader in enumerate(chains[0].leaders):
            found = read_to(chains[0].by_node[leader], topic, partition, wanted=len(expected))
            assert len(found) == len(expected)
            assert set(found) == expected


def read_to(client: WireClient, topic: str, partition: int, *, wanted: int) -> list[bytes | None]:
    """What is committed, once the last markers are written."""
    deadline = time.monotonic() + 30
    found = read_committed(client, topic, partition=partition)
    while len(found) < wanted and time.monotonic() < deadline:
        found = read_committed(client, topic, partition=partition)
    return found
