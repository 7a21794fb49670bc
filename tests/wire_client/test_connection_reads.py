"""Where responses end in the stream of bytes: it may come in one piece, or byte by byte."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from scripted_broker import Answer, HangUp, Healthy, ScriptedBroker

from ottla.errors import BrokerUnavailable
from ottla.testing import wait_until
from ottla.wire_client import Cluster, wire_settings
from ottla.wire_client.net import broker_connection as connections
from ottla.wire_client.net.broker_connection import Connection
from ottla.wire_client.net.connection_waiter import Waiter
from ottla_wire.protocol import ApiKey


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    for number in range(3):
        made.add_topic(f"orders-{number}", partitions=number + 1)
    yield made
    made.close()


@pytest.fixture
def connection(broker: ScriptedBroker) -> Iterator[Connection]:
    settings = wire_settings({"bootstrap.servers": broker.bootstrap_servers, "request.timeout.ms": "5000"})
    made = Connection("127.0.0.1", broker.port, settings)
    yield made
    made.close()


def ask(connection: Connection, number: int) -> None:
    connection.send(ApiKey.METADATA, {"topics": [{"name": f"orders-{number}"}]})


def partitions(response: Any) -> int:
    (topic,) = response.topics
    return len(topic.partitions)


def held_back(broker: ScriptedBroker, *, until: int, behind: bytes = b"") -> None:
    """Keep responses to metadata until there are so many, and send them in one piece."""
    frames: list[bytes] = []

    def mangle(api: ApiKey, frame: bytes) -> bytes:
        if api is not ApiKey.METADATA:
            return frame
        frames.append(frame)
        return b"".join(frames) + behind if len(frames) == until else b""

    broker.mangle = mangle


def test_responses_that_come_in_one_piece_are_told_apart(broker: ScriptedBroker, connection: Connection) -> None:
    held_back(broker, until=3)
    for number in range(3):
        ask(connection, number)
    assert [partitions(connection.receive()) for _ in range(3)] == [1, 2, 3]
    assert not connection.has_bytes


def test_who_waits_is_told_of_a_response_that_was_read_with_the_one_before(
    broker: ScriptedBroker, connection: Connection
) -> None:
    held_back(broker, until=2)
    ask(connection, 0)
    ask(connection, 1)
    waiter = Waiter()
    try:
        for expected in (1, 2):
            assert waiter.wait([connection], 5.0) == [connection]
            assert partitions(connection.receive()) == expected
        assert waiter.wait([connection], 0.0) == []
    finally:
        waiter.close()


def test_a_large_response_is_read_whole_and_the_next_one_behind_it(
    broker: ScriptedBroker, connection: Connection
) -> None:
    broker.add_topic("orders-3", partitions=20_000)
    held_back(broker, until=2)
    ask(connection, 3)
    ask(connection, 1)
    assert [partitions(connection.receive()) for _ in range(2)] == [20_000, 2]


def test_a_response_that_is_cut_off_ends_the_connection(broker: ScriptedBroker, connection: Connection) -> None:
    held_back(broker, until=1, behind=b"\0\0")

    def hang_up(request: Any, healthy: Healthy) -> Answer | None:
        raise HangUp

    ask(connection, 1)
    assert partitions(connection.receive()) == 2
    broker.script[ApiKey.METADATA].append(hang_up)
    ask(connection, 1)
    with pytest.raises(BrokerUnavailable, match="closed the connection"):
        connection.receive()
    assert not connection.is_open
    assert not connection.has_bytes


@pytest.mark.parametrize("ends", ["closes", "says what nobody asked for"])
def test_an_idle_connection_that_a_broker_ended_is_replaced(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """As after `connections.max.idle.ms`: no request is lost to find out."""
    monkeypatch.setattr(connections, "_LOOKED_AT_S", 0.0)
    with Cluster(wire_settings({"bootstrap.servers": broker.bootstrap_servers})) as cluster:
        idle = [cluster.any_broker(), cluster.broker(1, borrower=cluster)]
        assert [each.is_open for each in idle] == [True, True]
        assert cluster.any_broker() is idle[0]
        for served in broker.connections:
            if ends == "closes":
                served.shutdown(socket.SHUT_RDWR)
            else:
                served.sendall(b"\0")
        with closing(Waiter()) as waiter:
            wait_until(lambda: len(waiter.wait(idle, 1)) == 2, 10)
        again = [cluster.any_broker(), cluster.broker(1, borrower=cluster)]
        assert not any(each.is_open for each in idle)
        for each in again:
            assert partitions(each.call(ApiKey.METADATA, {"topics": [{"name": "orders-2"}]})) == 3


def test_a_request_that_the_kernel_takes_in_pieces_arrives_whole(
    broker: ScriptedBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = os.write
    monkeypatch.setattr(os, "write", lambda number, frame: takes(number, frame[:5]))
    ask(connection, 2)
    assert partitions(connection.receive()) == 3


def test_a_request_that_the_kernel_has_no_room_for_is_sent_when_it_has(
    broker: ScriptedBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(number: int, frame: bytes) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "write", is_full)
    ask(connection, 2)
    assert partitions(connection.receive()) == 3
