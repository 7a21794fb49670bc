"""Sessions that end (KIP-368): who authenticates again stays, on the same connection; who does not is closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.security.authenticator import SaslAuthenticator
from broker_embedded.security.listener import PlainExchange
from broker_embedded.security.settings import Security
from ottla.wire_client.net.sasl import start_exchange
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
SESSION_MS = 1_500
HANDSHAKE, AUTHENTICATE, METADATA = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA

Connect = Callable[[], WireClient]


@pytest.fixture(scope="module")
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module")
def cluster(clock: VirtualClock) -> Iterator[EmbeddedCluster]:
    config = {"connections.max.reauth.ms": SESSION_MS}
    with EmbeddedCluster(clock=clock, config=config, security=Security("SASL_PLAINTEXT", users=USERS)) as running:
        yield running


@pytest.fixture
def connect(cluster: EmbeddedCluster) -> Iterator[Connect]:
    opened: list[WireClient] = []

    def open_one() -> WireClient:
        opened.append(WireClient(cluster.bootstrap_servers, timeout_s=60))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


def plain(user: str, password: str = "") -> bytes:
    return f"\0{user}\0{password or USERS[user]}".encode()


def authenticate(client: WireClient, token: bytes, *, mechanism: str = "PLAIN", version: int = 2) -> Message:
    shaken = client.call(HANDSHAKE, 1, {"mechanism": mechanism})
    assert shaken.error_code == ErrorCode.NONE
    return client.call(AUTHENTICATE, version, {"auth_bytes": token})


def works(client: WireClient) -> bool:
    return len(client.call(METADATA, 9, {"topics": []}).brokers) == 1


def is_refused(client: WireClient) -> bool:
    client.send(METADATA, 9, {"topics": []})
    return client.is_closed_by_peer()


@pytest.mark.parametrize("version", [1, 2])
def test_a_client_is_told_how_long_it_is_let_in(connect: Connect, version: int) -> None:
    answer = authenticate(connect(), plain("alice"), version=version)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, SESSION_MS)


def test_who_does_not_authenticate_again_is_closed_at_its_next_request(connect: Connect, clock: VirtualClock) -> None:
    client = connect()
    authenticate(client, plain("alice"))
    clock.advance(SESSION_MS - 1)
    assert works(client)
    clock.advance(1)
    assert is_refused(client)


def test_who_authenticates_again_stays_for_as_long_again(connect: Connect, clock: VirtualClock) -> None:
    client = connect()
    authenticate(client, plain("alice"))
    for _ in range(3):
        clock.advance(SESSION_MS - 1)
        assert authenticate(client, plain("alice")).session_lifetime_ms == SESSION_MS
        assert works(client)
    clock.advance(SESSION_MS)
    assert is_refused(client)


def test_it_is_not_too_late_after_the_end(connect: Connect, clock: VirtualClock) -> None:
    client = connect()
    authenticate(client, plain("alice"))
    clock.advance(10 * SESSION_MS)
    assert authenticate(client, plain("alice")).error_code == 0
    assert works(client)


def test_scram_tells_it_with_the_last_step_each_time(connect: Connect, clock: VirtualClock) -> None:
    client = connect()
    for _ in range(2):
        exchange = start_exchange("SCRAM-SHA-256", username="alice", password=USERS["alice"])
        challenge = authenticate(client, next(exchange), mechanism="SCRAM-SHA-256")
        assert (challenge.error_code, challenge.session_lifetime_ms) == (0, 0)
        proof = exchange.send(bytes(challenge.auth_bytes))
        assert client.call(AUTHENTICATE, 2, {"auth_bytes": proof}).session_lifetime_ms == SESSION_MS
        clock.advance(SESSION_MS)


@pytest.mark.parametrize(
    ("token", "mechanism", "told"),
    [
        (plain("bob"), "PLAIN", "Cannot change principals during re-authentication from User.alice: User.bob"),
        (
            plain("alice", "guess"),
            "PLAIN",
            "Authentication failed: Invalid username or password",
        ),
        (
            b"n,,n=alice,r=nonce",
            "SCRAM-SHA-256",
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism "
            "'PLAIN'",
        ),
    ],
    ids=["another user", "a wrong password", "another mechanism"],
)
def test_who_comes_again_as_somebody_else_is_told_and_closed(
    connect: Connect, token: bytes, mechanism: str, told: str
) -> None:
    client = connect()
    authenticate(client, plain("alice"))
    answer = authenticate(client, token, mechanism=mechanism)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, told)
    assert client.is_closed_by_peer()


def test_nothing_else_is_answered_while_a_client_authenticates_again(connect: Connect) -> None:
    client = connect()
    authenticate(client, plain("alice"))
    client.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    client.send(METADATA, 9, {"topics": []})
    assert client.is_closed_by_peer()


def test_a_large_request_is_taken_from_who_is_let_in(connect: Connect) -> None:
    client = connect()
    authenticate(client, plain("alice"))
    topics = [{"name": f"{'x' * 240}-{number}"} for number in range(3_000)]
    body = {"topics": topics, "allow_auto_topic_creation": False}
    assert len(client.call(METADATA, 9, body).topics) == 3_000


def test_librdkafka_authenticates_again_on_the_same_connection(cluster: EmbeddedCluster) -> None:
    """It does so by its own time, and the broker's stands still: no session ends, however slow the machine is."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }
    )
    server = cluster._cluster.nodes[1].broker.server

    def completions() -> int:
        known = [connection.authenticator for connection in list(server.connections)]
        return max((each.completions for each in known if each is not None), default=0)

    deadline = time.monotonic() + 60
    while completions() < 2:
        assert time.monotonic() < deadline, "nobody has authenticated again"
        producer.poll(0.05)
    producer.produce("t", b"x")
    assert producer.flush(60) == 0


async def test_aiokafka_which_does_not_know_of_it_connects_again(cluster: EmbeddedCluster, clock: VirtualClock) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="bob",
        sasl_plain_password=USERS["bob"],
        enable_idempotence=True,
    )
    async with producer:
        for number in range(3):
            assert (await producer.send_and_wait("by-aiokafka", b"x", partition=0)).offset == number
            await asyncio.to_thread(clock.advance, SESSION_MS)


# --- the states alone


def new_authenticator(clock: ManualClock, session_ms: int = SESSION_MS) -> SaslAuthenticator:
    return SaslAuthenticator(
        mechanisms=("PLAIN", "SCRAM-SHA-256"),
        new_exchange=lambda mechanism: PlainExchange(USERS),
        session_ms=lambda mechanism: session_ms,
        now_ms=clock.monotonic_ms,
    )


def allowed(authenticator: SaslAuthenticator) -> set[ApiKey]:
    return {key for key in ApiKey if authenticator.allows(key)}


def test_only_authenticating_again_is_allowed_when_the_session_is_over() -> None:
    clock = ManualClock()
    authenticator = new_authenticator(clock)
    authenticator.shake_hands("PLAIN", version=1)
    authenticator.authenticate(plain("alice"))
    assert allowed(authenticator) == set(ApiKey)
    clock.advance(SESSION_MS)
    assert authenticator.has_expired
    assert allowed(authenticator) == {HANDSHAKE}
    authenticator.shake_hands("PLAIN", version=1)
    assert allowed(authenticator) == {AUTHENTICATE}
    authenticator.authenticate(plain("alice"))
    assert allowed(authenticator) == set(ApiKey)
    assert authenticator.completions == 2


@pytest.mark.parametrize("session_ms", [0, -1])
def test_a_session_without_an_end_is_not_begun_again(session_ms: int) -> None:
    clock = ManualClock()
    authenticator = new_authenticator(clock, session_ms)
    authenticator.shake_hands("PLAIN", version=1)
    authenticator.authenticate(plain("alice"))
    clock.advance(10**12)
    assert allowed(authenticator) == set(ApiKey)
    with pytest.raises(BrokerError) as refused:
        authenticator.shake_hands("PLAIN", version=1)
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE
    assert authenticator.is_complete
