"""What the tests of transactions share: a cluster per module, names per test, connections."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from transaction_wire import WireProducer, find_coordinator
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster

GROUP = 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster for the tests of one module; each makes its own topics and ids. Timed out transactions are found
    soon."""
    with EmbeddedCluster(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20}) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[-200:]


@pytest.fixture
def topic(cluster: EmbeddedCluster, name: str) -> str:
    cluster.create_topic(name, partitions=3)
    return name


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    connection = WireClient(cluster.bootstrap_servers, timeout_s=30)
    find_coordinator(connection, "any", GROUP)
    yield connection
    connection.close()


@pytest.fixture
def producer(client: WireClient, name: str) -> Callable[..., WireProducer]:
    """Makes a producer with the test's transactional id, not let in yet."""
    return lambda **options: WireProducer(client, name, **options)


@pytest.fixture
def until() -> Callable[..., None]:
    """Look again and again until `condition` holds; fails after 30 s."""

    def wait(condition: Callable[[], object], step: Callable[[], object] = lambda: time.sleep(0.01)) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            step()

    return wait
