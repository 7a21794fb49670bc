"""What answers is not to be trusted: sizes, texts and numbers of a peer that is no broker, or a malicious one."""

from __future__ import annotations

import base64
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_broker import ScriptedBroker

from ottla.errors import BrokerUnavailable, ConfigError, OttlaError
from ottla.records import TopicPartition
from ottla.wire_client import (
    EARLIEST,
    BrokerRefused,
    Cluster,
    Connection,
    ResponseTooLarge,
    WireSettings,
    begin_transaction,
    commit_group_offsets,
    group_offsets,
    wire_settings,
)
from ottla.wire_client.cluster.topic_limits import max_message_bytes
from ottla.wire_client.net.sasl import start_exchange
from ottla_wire.protocol import ApiKey

PLACE = TopicPartition("orders", 0)
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
MEGABYTE = 1024 * 1024


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    scripted = ScriptedBroker()
    scripted.add_topic("orders")
    yield scripted
    scripted.close()


def settings_for(port: int, **changes: object) -> WireSettings:
    quick = {"default.api.timeout.ms": 0, "retry.backoff.ms": 1, "request.timeout.ms": 5000}
    return wire_settings(quick | changes, bootstrap_servers=f"127.0.0.1:{port}")


@contextmanager
def peer_that_sends(*pieces: bytes, until: threading.Event | None = None) -> Iterator[int]:
    """The port of a peer that reads a request and sends these pieces; with `until`, the last one again and again."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                for piece in pieces:
                    connection.sendall(piece)
                while until is not None and not until.wait(0.01):
                    connection.sendall(pieces[-1])
                connection.recv(65_536)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(10)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "it speaks HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS"),
        (b"\xff\xff\xff\xff and more", "announces -1 bytes"),
        (b"\x7f\xff\xff\xff and more", "announces 2147483647 bytes"),
        (b"\0\0\0\2ab", "shorter than a header"),
        (b"\0\0\0\4\0\0\0\1", "the message ends inside this field"),
        (b"\0\0\0\4\0\0\0\7", "response 7 came where 1 was due"),
    ],
)
def test_a_port_that_is_no_brokers_is_named_before_memory_is_taken(sent: bytes, reason: str) -> None:
    for _ in range(2):  # the first imports what is loaded for an error, which Python 3.14 takes 3.5 MB for
        with peer_that_sends(sent) as port:
            tracemalloc.start()
            try:
                with pytest.raises(BrokerUnavailable, match=rf"127\.0\.0\.1:{port} .*security\.protocol") as caught:
                    Connection("127.0.0.1", port, settings_for(port))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert reason in str(caught.value)
    assert peak < 2 * MEGABYTE


def test_a_response_that_drips_ends_at_the_request_timeout() -> None:
    done = threading.Event()
    started = time.monotonic()
    with peer_that_sends(b"\0\x0f\xff\xff", b".", until=done) as port:
        with pytest.raises(BrokerUnavailable, match="no answer in time"):
            Connection("127.0.0.1", port, settings_for(port, **{"request.timeout.ms": 300}))
        done.set()
    assert time.monotonic() - started < 5


def test_a_response_beyond_the_limit_names_the_setting_and_drops_the_connection(broker: ScriptedBroker) -> None:
    limit = 9 * MEGABYTE
    with Cluster(settings_for(broker.port, **{"receive.message.max.bytes": limit})) as cluster:
        connection = cluster.any_broker()
        broker.mangle = lambda api, frame: (limit + 1).to_bytes(4, "big") + frame[4:]
        with pytest.raises(
            ResponseTooLarge, match=r"METADATA announces 9,437,185 bytes, receive\.message\.max\.bytes allows 9,437,184"
        ):
            cluster.topic("orders")
        assert not connection.is_open
        broker.mangle = lambda api, frame: frame
        assert cluster.topic("orders").leaders == {0: 1}


def test_the_limit_of_responses_has_room_for_a_fetch() -> None:
    assert settings_for(1).receive_message_max_bytes == 100_000_000
    assert settings_for(1, **{"fetch.max.bytes": 200_000_000}).receive_message_max_bytes == 200_000_512
    with pytest.raises(ConfigError, match=r"receive\.message\.max\.bytes: found 1000, wanted at least 8389120"):
        settings_for(1, **{"receive.message.max.bytes": 1000})


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("a" * 300, 9092), ("a\0b", 9092), ("..", 9092), ("localhost", 0), ("localhost", -1), ("h", 70_000)],
)
def test_an_address_in_metadata_that_cannot_be_is_named(broker: ScriptedBroker, host: str, port: int) -> None:
    def lie(request, healthy):
        return healthy(request) | {"brokers": [{"node_id": 1, "host": host, "port": port}]}

    broker.script[ApiKey.METADATA] = [lie] * 3
    wanted = pytest.raises(BrokerUnavailable, match="no broker can be at")
    with Cluster(settings_for(broker.port)) as cluster, wanted:
        cluster.list_offsets({PLACE: EARLIEST})


@pytest.mark.parametrize("value", ["", "many", "-5", "9" * 5000, "\N{ARABIC-INDIC DIGIT FIVE}"])
def test_a_size_limit_that_is_no_number_does_not_count(broker: ScriptedBroker, value: str) -> None:
    config = {"name": "max.message.bytes", "value": value}
    broker.script[ApiKey.DESCRIBE_CONFIGS] = [
        lambda request, healthy: {"results": [{"error_code": 0, "resource_type": 2, "configs": [config]}]}
    ]
    with Cluster(settings_for(broker.port)) as cluster:
        assert max_message_bytes(cluster, "orders") == (MEGABYTE, "max.request.size (client)")


def test_an_error_code_that_nobody_knows_is_an_unknown_error(broker: ScriptedBroker) -> None:
    broker.script[ApiKey.LIST_OFFSETS] = [
        lambda request, healthy: {
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 31_000}]}]
        }
    ]
    wanted = pytest.raises(BrokerRefused, match="offsets of orders-0: the broker returned UNKNOWN_SERVER_ERROR")
    with Cluster(settings_for(broker.port)) as cluster, wanted:
        cluster.list_offsets({PLACE: EARLIEST})


CALLS = [
    lambda cluster: cluster.list_offsets({PLACE: EARLIEST}),
    lambda cluster: cluster.topics_matching("o.*"),
    lambda cluster: group_offsets(cluster, "g", [PLACE]),
    lambda cluster: commit_group_offsets(cluster, "g", {PLACE: 3}),
    lambda cluster: max_message_bytes(cluster, "orders"),
    lambda cluster: begin_transaction(cluster, "t"),
]


@given(call=st.sampled_from(CALLS), seed=st.integers(0, 2**32))
def test_whatever_bytes_a_broker_sends_only_errors_of_ottla_come_out(call, seed: int) -> None:
    random = Random(seed)
    broker = ScriptedBroker()
    broker.add_topic("orders")

    def mangle(api: ApiKey, frame: bytes) -> bytes:
        if api is ApiKey.API_VERSIONS and random.random() < 0.9:
            return frame
        changed = bytearray(frame)
        for _ in range(random.choice((0, 1, 1, 2, 8))):
            place = random.randrange(random.choice((0, 4, 8)), len(changed))
            changed[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        if random.random() < 0.1:
            changed = changed[: random.randrange(len(changed))]
        if random.random() < 0.8:  # the size is right more often than not, so that what is inside is read
            changed[:4] = (len(changed) - 4).to_bytes(4, "big", signed=True)
        return bytes(changed)

    broker.mangle = mangle
    try:
        with Cluster(settings_for(broker.port, **{"request.timeout.ms": 200})) as cluster, suppress(OttlaError):
            call(cluster)
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=mine1,s=" + SALT.encode() + b",i=2147483647", "2147483647 iterations, accepted are 4096 to 1000000"),
        (b"r=mine1,s=" + SALT.encode() + b",i=99999999999999999999", "wanted a number of iterations"),
        (b"r=mine1,s=" + SALT.encode() + b",i=" + b"9" * 5000, "wanted a number of iterations"),
        (b"r=mine1,s=" + SALT.encode() + b",i=4096e3", "wanted a number of iterations"),
        (b"r=mine1,s=" + SALT.encode() + b",i=-4096", "wanted a number of iterations"),
        (b"r=mine1,s=" + SALT.encode() + b",i=4095", "4095 iterations"),
        (b"r=mine1,s=***,i=4096", "not base64"),
        (b"r=mine1,s=\xff,i=4096", "not UTF-8"),
        (b"r=mine1,i=4096", "wanted the attributes r, s, i"),
        (b"m=must-be-known,r=mine1,s=" + SALT.encode() + b",i=4096", "wanted the attributes r, s, i"),
        (b"", "wanted the attributes r, s, i"),
        (b"i", "wanted the attributes r, s, i"),
        (b"e=unknown-user\x1b[2J", r"refused: 'unknown-user\\x1b\[2J'"),
        (b"r=" + b"y" * 100_000, r"y\'\.\.\., wanted|for another client"),
    ],
)
def test_a_scram_challenge_that_cannot_be_met_says_why(challenge: bytes, reason: str) -> None:
    exchange = start_exchange("SCRAM-SHA-256", username="user", password="pencil", nonce="mine")
    next(exchange)
    with pytest.raises(BrokerRefused, match=reason) as caught:
        exchange.send(challenge)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("last", [b"", b"v=", b"v=***", b"v=\xff", b"e=other-error", b"v=" + base64.b64encode(b"no")])
def test_a_broker_that_proves_nothing_is_refused(last: bytes) -> None:
    exchange = start_exchange("SCRAM-SHA-256", username="user", password="pencil", nonce="mine")
    next(exchange)
    exchange.send(f"r=mine1,s={SALT},i=4096".encode())
    with pytest.raises(BrokerRefused, match="SCRAM: the broker"):
        exchange.send(last)


@given(messages=st.lists(st.binary(max_size=200), min_size=2, max_size=2), prefix=st.booleans())
def test_no_scram_message_is_anything_but_refused(messages: list[bytes], prefix: bool) -> None:
    exchange = start_exchange("SCRAM-SHA-512", username="user", password="pencil", nonce="mine")
    next(exchange)

    def play() -> None:
        exchange.send(f"r=mine1,s={SALT},i=4096".encode() if prefix else messages[0])
        exchange.send(messages[1])

    with pytest.raises(BrokerRefused):
        play()


def test_a_bad_challenge_names_the_broker_it_came_from(broker: ScriptedBroker) -> None:
    broker.script[ApiKey.SASL_HANDSHAKE] = [lambda request, healthy: {"error_code": 0, "mechanisms": []}]
    broker.script[ApiKey.SASL_AUTHENTICATE] = [lambda request, healthy: {"error_code": 0, "auth_bytes": b"\xff"}]
    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ann", "sasl.password": "secret"}
    settings = settings_for(broker.port, **login, **{"security.protocol": "SASL_PLAINTEXT"})
    with pytest.raises(BrokerRefused, match=rf"^127\.0\.0\.1:{broker.port}: SCRAM: the broker sent"):
        Connection("127.0.0.1", broker.port, settings)
