"""The Java producer, the one client that speaks transaction.version 2. Runs with `KAFKA=real`, which fetches it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from apache_kafka import Unavailable, libraries, wanted
from transaction_wire import committed_offset, markers_in, read_committed
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster

PROGRAM = Path(__file__).parent / "java" / "Transactions.java"

pytestmark = pytest.mark.real_kafka


@pytest.fixture(scope="module")
def class_path() -> str:
    if wanted() is None:
        pytest.skip("the Java client is fetched and run with KAFKA=real")
    try:
        return f"{libraries(wanted())}/*"
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    settings = {
        "transaction.state.log.replication.factor": request.param,
        "offsets.topic.replication.factor": request.param,
        "offsets.topic.num.partitions": 1,
    }
    with EmbeddedCluster(brokers=request.param, config=settings) as running:
        running.create_topic("t", partitions=3, replication_factor=request.param)
        yield running


def leader(cluster: EmbeddedCluster, topic: str, partition: int) -> WireClient:
    number = cluster.broker_ids.index(cluster.wait_for_leader(topic, partition))
    return WireClient(cluster.bootstrap_servers.split(",")[number], timeout_s=30)


@pytest.mark.timeout(240)
def test_the_java_producer_commits_aborts_and_is_fenced(cluster: EmbeddedCluster, class_path: str):
    command = ["java", "-cp", class_path, str(PROGRAM), cluster.bootstrap_servers, "t", "g"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.split()) == (0, ["fenced"]), done.stderr[-3000:]
    for partition in range(3):
        client = leader(cluster, "t", partition)
        living = [b"living"] if partition == 0 else []
        assert read_committed(client, "t", partition=partition) == [b"0", b"2", b"4", *living]
        markers = markers_in(client, "t", partition=partition)
        assert [kind for _, _, kind in markers[:6]] == ["COMMIT", "ABORT"] * 3
        assert all(after > before for (_, before, _), (_, after, _) in pairwise(markers)), "each has its own epoch"
        client.close()
    groups = leader(cluster, "__consumer_offsets", 0)
    assert committed_offset(groups, "g", "t", require_stable=True).committed_offset == 4
    groups.close()
