"""What the tests of share groups on one broker start with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    client = WireClient(cluster.bootstrap_servers)
    yield client
    client.close()
