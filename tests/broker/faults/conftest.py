"""A cluster whose requests can be made to fail, and a client that says exactly what it wants to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.faults import Faults
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, encode_batch

DEADLINE_S = 30


class Asker(WireClient):
    """One connection of a client by this name, with the requests that these tests make, for several partitions."""

    def __init__(self, address: str, client_id: str = "asker") -> None:
        super().__init__(address, timeout_s=DEADLINE_S, client_id=client_id)

    def receive(self) -> Message:
        """The next answer."""
        _, message = super().receive()
        return message

    def call(self, api: ApiKey, version: int, body: dict[str, Any]) -> Message:
        self.send(api, version, body)
        return self.receive()

    def produce(self, topic: str, values: dict[int, bytes], *, acks: int = -1) -> dict[int, Message]:
        """One record per partition; the answers by partition."""
        self.send_produce(topic, values, acks=acks)
        response = self.receive()
        return {each.index: each for topic in response.responses for each in topic.partition_responses}

    def send_produce(self, topic: str, values: dict[int, bytes], *, acks: int = -1) -> None:
        self.send(ApiKey.PRODUCE, 9, produce_body(topic, values, acks=acks))

    def fetch(self, topic: str, *partitions: int, max_wait_ms: int = 0, **fields: Any) -> dict[int, Message]:
        """The answers of those partitions that the response has, by partition."""
        response = self.call(ApiKey.FETCH, 11, fetch_body(topic, *partitions, max_wait_ms=max_wait_ms, **fields))
        return {each.partition_index: each for topic in response.responses for each in topic.partitions}

    def end_offset(self, topic: str, partition: int = 0) -> int:
        wanted = {"partition_index": partition, "timestamp": -1}
        response = self.call(
            ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}
        )
        answer = response.topics[0].partitions[0]
        assert answer.error_code == 0
        offset: int = answer.offset
        return offset

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the stream. False if an answer comes instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def batch_of(value: bytes) -> bytes:
    record = RecordData(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=value, headers=())
    return bytes(encode_batch([record], compression=CompressionType.NONE))


def produce_body(topic: str, values: dict[int, bytes], *, acks: int = -1) -> dict[str, Any]:
    partitions = [{"index": index, "records": batch_of(value)} for index, value in values.items()]
    return {
        "acks": acks,
        "timeout_ms": DEADLINE_S * 1_000,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }


def fetch_body(topic: str, *partitions: int, max_wait_ms: int = 0, **fields: Any) -> dict[str, Any]:
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_048_576} for index in partitions]
    topics = [{"topic": topic, "partitions": wanted}] if wanted else []
    return {"max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 52_428_800, "topics": topics, **fields}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("t", partitions=3)
        yield running


@pytest.fixture
def faults(cluster: EmbeddedCluster) -> Faults:
    return cluster.faults


@pytest.fixture
def make_asker() -> Iterator[Callable[..., Asker]]:
    """A function that connects to an address."""
    opened: list[Asker] = []

    def open_one(address: str, client_id: str = "asker") -> Asker:
        opened.append(Asker(address, client_id))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def connect(cluster: EmbeddedCluster, make_asker: Callable[..., Asker]) -> Callable[..., Asker]:
    """A function that connects to the cluster's broker."""

    def open_one(client_id: str = "asker") -> Asker:
        return make_asker(cluster.bootstrap_servers, client_id)

    return open_one


@pytest.fixture
def asker(connect: Callable[..., Asker]) -> Asker:
    return connect()
