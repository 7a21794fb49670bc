"""A cluster of the test's own, and a client that speaks the wire protocol frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, encode_batch


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def connect(cluster: EmbeddedCluster) -> Iterator[Callable[[], WireClient]]:
    """A function that opens another connection to the cluster."""
    opened: list[WireClient] = []

    def open_one() -> WireClient:
        client = WireClient(cluster.bootstrap_servers)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[[], WireClient]) -> WireClient:
    return connect()


@pytest.fixture
def make_batch() -> Callable[..., bytes]:
    """A function that encodes a record batch of the given values."""

    def make(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **options: Any) -> bytes:
        records = [
            RecordData(offset=index, timestamp_ms=timestamp_ms + index, key=None, value=value, headers=())
            for index, value in enumerate(values)
        ]
        options.setdefault("compression", CompressionType.NONE)
        return bytes(encode_batch(records, **options))

    return make


@pytest.fixture
def make_wire_client() -> Iterator[Callable[[str], WireClient]]:
    """A function that connects to any cluster by its bootstrap servers."""
    opened: list[WireClient] = []

    def open_one(bootstrap_servers: str) -> WireClient:
        client = WireClient(bootstrap_servers)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()
