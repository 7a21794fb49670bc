"""Timeouts of transactions and of transactional ids on a virtual clock: days pass in a moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from transaction_wire import WireProducer, markers_in, read_committed
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla_wire.protocol import ApiKey, ErrorCode


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(clock=VirtualClock()) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    connection = WireClient(cluster.bootstrap_servers, timeout_s=30)
    yield connection
    connection.close()


def state_of(client: WireClient, transactional_id: str) -> str | ErrorCode:
    answer = client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
    (found,) = answer.transaction_states
    return ErrorCode(found.error_code) if found.error_code else str(found.transaction_state)


def test_a_transaction_is_aborted_after_its_timeout_and_not_before(cluster: EmbeddedCluster, client: WireClient):
    producer = WireProducer(client, "x", timeout_ms=60_000).init()
    producer.send("t", b"lost")
    cluster.clock.advance(seconds=55)
    assert state_of(client, "x") == "Ongoing"
    assert markers_in(client, "t") == []
    cluster.clock.advance(seconds=20)
    assert state_of(client, "x") == "CompleteAbort"
    assert [kind for _, _, kind in markers_in(client, "t")] == ["ABORT"]
    assert producer.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert read_committed(client, "t") == []


def test_a_transactional_id_is_forgotten_after_a_week_of_silence(cluster: EmbeddedCluster, client: WireClient):
    idle = WireProducer(client, "idle").init()
    busy = WireProducer(client, "busy").init()
    cluster.clock.advance(days=6)
    busy.send("t", b"x")
    busy.commit()
    cluster.clock.advance(days=1, hours=2)
    assert state_of(client, "idle") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert state_of(client, "busy") == "CompleteCommit"
    assert idle.end(commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = WireProducer(client, "idle").init()
    assert (again.producer_id != idle.producer_id, again.epoch) == (True, 0)
