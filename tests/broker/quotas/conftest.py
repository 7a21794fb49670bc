"""A cluster whose time stands still until a test moves it, and what sets quotas in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla_wire.protocol import ApiKey
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, encode_batch

SetQuota = Callable[..., None]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(clock=clock) as running:
        yield running


@pytest.fixture
def connect(cluster: EmbeddedCluster) -> Iterator[Callable[..., WireClient]]:
    """A function that opens a connection: to the first broker, or to another one by its address."""
    opened: list[WireClient] = []

    def open_one(client_id: str = "app", *, address: str = "") -> WireClient:
        opened.append(WireClient(address or cluster.bootstrap_servers, timeout_s=60, client_id=client_id))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def set_quota(cluster: EmbeddedCluster) -> Iterator[SetQuota]:
    """A function that sets quotas, and returns when every broker knows them."""
    clients = [WireClient(address, timeout_s=60, client_id="admin") for address in cluster.bootstrap_servers.split(",")]

    def is_known(client: WireClient, entity: dict[str, str | None], quotas: dict[str, float | None]) -> bool:
        components = [
            {"entity_type": kind, "match_type": 1 if name is None else 0, "match": name}
            for kind, name in entity.items()
        ]
        body = {"components": components, "strict": True}
        entries = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, body).entries
        values = {each.key: each.value for entry in entries for each in entry.values}
        return all(values.get(key) == value for key, value in quotas.items())

    def change(entity: dict[str, str | None], **quotas: float | None) -> None:
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()],
        }
        body = {"entries": [entry], "validate_only": False}
        for altered in clients[-1].call(ApiKey.ALTER_CLIENT_QUOTAS, 1, body).entries:
            assert altered.error_code == 0, altered.error_message
        wait_until(lambda: all(is_known(client, entity, quotas) for client in clients))

    yield change
    for client in clients:
        client.close()


def wait_until(is_so: Callable[[], Any], *, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def batch() -> Callable[[int], bytes]:
    """A function that encodes a batch with one record of so many bytes."""

    def encode(size: int) -> bytes:
        record = RecordData(offset=0, timestamp_ms=0, key=None, value=b"x" * size, headers=())
        return bytes(encode_batch([record], compression=CompressionType.NONE))

    return encode
