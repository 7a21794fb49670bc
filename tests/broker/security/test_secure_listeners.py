"""What a listener with SASL answers, frame by frame, and what ends a connection: as Kafka's does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from random import Random, SystemRandom

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.security.authenticator import MAX_FRAME_BYTES
from ottla.testing import SecureKafka, secure_kafka
from ottla.wire_client.net.sasl import start_exchange
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

USER, PASSWORD = "alice", "alice-secret"
TOKEN = f"\0{USER}\0{PASSWORD}".encode()

Connect = Callable[[], WireClient]


def shake_hands(client: WireClient, mechanism: str = "PLAIN", *, version: int = 1) -> Message:
    return client.call(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(client: WireClient, token: bytes = TOKEN, *, version: int = 2) -> Message:
    return client.call(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})


def ask_for_metadata(client: WireClient) -> Message:
    return client.call(ApiKey.METADATA, 9, {"topics": []})


def ask_for_versions(client: WireClient, *, software: str = "test") -> Message:
    body = {"client_software_name": software, "client_software_version": "1"}
    return client.call(ApiKey.API_VERSIONS, 3, body)


def works(client: WireClient) -> bool:
    return len(ask_for_metadata(client).brokers) == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_authenticates_is_served(client: WireClient, version: int) -> None:
    assert ask_for_versions(client).error_code == ErrorCode.NONE
    shaken = shake_hands(client)
    assert shaken.error_code == ErrorCode.NONE
    assert shaken.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    answer = authenticate(client, version=version)
    assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, None, b"")
    if version:
        assert answer.session_lifetime_ms == 0
    assert works(client)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_takes_two_steps(client: WireClient, mechanism: str) -> None:
    shake_hands(client, mechanism)
    exchange = start_exchange(mechanism, username=USER, password=PASSWORD)
    challenge = authenticate(client, next(exchange))
    proof = exchange.send(bytes(challenge.auth_bytes))
    with pytest.raises(StopIteration):
        exchange.send(bytes(authenticate(client, proof).auth_bytes))
    assert works(client)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_old_clients_send_their_tokens_bare(client: WireClient, mechanism: str) -> None:
    assert shake_hands(client, mechanism, version=0).error_code == ErrorCode.NONE
    exchange = start_exchange(mechanism, username=USER, password=PASSWORD)
    token = next(exchange)
    try:
        while True:
            client.socket.sendall(len(token).to_bytes(4, "big") + token)
            token = exchange.send(client.receive_frame())
    except StopIteration:
        assert works(client)


def test_a_bare_token_may_be_shorter_than_any_request(connect: Connect) -> None:
    for token in (b"", b"\0a\0b"):
        client = connect()
        shake_hands(client, version=0)
        client.socket.sendall(len(token).to_bytes(4, "big") + token)
        assert client.is_closed_by_peer()  # refused, and there is no way to say so


def test_a_wrong_password_is_told_and_the_connection_closed(client: WireClient) -> None:
    shake_hands(client)
    answer = authenticate(client, b"\0alice\0guess")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert client.is_closed_by_peer()


def test_guesses_are_answered_late_and_one_at_a_time(connect: Connect) -> None:
    guess = b"\0alice\0guess"
    started = time.monotonic()
    for _ in range(3):
        client = connect()
        shake_hands(client)
        for _ in range(5):  # the others are never looked at: the first one ends the connection
            client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": guess})
        assert client.receive()[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_peer()
    assert time.monotonic() - started > 0.3, "connection.failed.authentication.delay.ms is 100"


def test_a_bare_guess_is_hung_up_on_late(client: WireClient) -> None:
    shake_hands(client, version=0)
    started = time.monotonic()
    client.socket.sendall(len(TOKEN).to_bytes(4, "big") + TOKEN[:-1] + b"?")
    assert client.is_closed_by_peer()
    assert time.monotonic() - started > 0.1


def test_the_delay_can_be_chosen_and_others_do_not_wait_for_it() -> None:
    never = {"connection.failed.authentication.delay.ms": 3_600_000}
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", config=never) as kafka:
        guessing, knowing = WireClient(kafka.bootstrap_servers), WireClient(kafka.bootstrap_servers)
        shake_hands(guessing)
        guessing.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0guess"})
        shake_hands(knowing)
        name, password = kafka.settings["sasl.username"], kafka.settings["sasl.password"]
        authenticate(knowing, f"\0{name}\0{password}".encode())
        assert works(knowing)
        guessing.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            guessing.socket.recv(1)
        guessing.close()
        knowing.close()


def test_what_nobody_may_guess_is_drawn_from_the_systems_randomness_unless_a_test_gives_its_own() -> None:
    seeded = Random(1)
    assert isinstance(EmbeddedCluster()._cluster._random, SystemRandom)
    assert EmbeddedCluster(random=seeded)._cluster._random is seeded


def test_scram_does_not_tell_whether_there_is_such_a_user(connect: Connect) -> None:
    messages = set()
    for user in (USER, "nobody"):
        client = connect()
        shake_hands(client, "SCRAM-SHA-256")
        exchange = start_exchange("SCRAM-SHA-256", username=user, password="guess")
        answer = authenticate(client, next(exchange))
        if answer.error_code == ErrorCode.NONE:
            answer = authenticate(client, exchange.send(bytes(answer.auth_bytes)))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        messages.add(answer.error_message)
        assert client.is_closed_by_peer()
    assert len(messages) == 1


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(client: WireClient) -> None:
    answer = shake_hands(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.SASL_AUTHENTICATE])
def test_whoever_asks_for_something_first_is_cut_off(client: WireClient, api: ApiKey) -> None:
    client.send(api, 0, {"topics": []} if api is ApiKey.METADATA else {"auth_bytes": TOKEN})
    assert client.is_closed_by_peer()


def test_an_api_that_nobody_knows_cuts_off_too(client: WireClient) -> None:
    client.socket.sendall(bytes([0, 0, 0, 10, 0x7F, 0xFF, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF]))
    assert client.is_closed_by_peer()


def test_versions_are_told_once(client: WireClient) -> None:
    assert ask_for_versions(client).error_code == ErrorCode.NONE
    client.send(ApiKey.API_VERSIONS, 0, {})
    assert client.is_closed_by_peer()


def test_versions_that_could_not_be_told_may_be_asked_for_again(client: WireClient) -> None:
    assert ask_for_versions(client, software="?").error_code == ErrorCode.INVALID_REQUEST
    assert ask_for_versions(client).error_code == ErrorCode.NONE
    shake_hands(client)
    assert authenticate(client).error_code == ErrorCode.NONE


def test_another_request_in_the_middle_is_answered_with_illegal_sasl_state(client: WireClient) -> None:
    shake_hands(client)
    answer = client.call(ApiKey.FIND_COORDINATOR, 2, {"key": "group", "key_type": 0})
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed_by_peer()


def test_who_is_known_cannot_begin_again_and_stays_known(client: WireClient) -> None:
    shake_hands(client)
    authenticate(client)
    assert shake_hands(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert works(client)


def test_everything_may_come_in_one_piece(client: WireClient) -> None:
    client.send(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    client.send(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": TOKEN})
    client.send(ApiKey.METADATA, 9, {"topics": []})
    shaken, known, metadata = (client.receive()[1] for _ in range(3))
    assert (shaken.error_code, known.error_code, len(metadata.brokers)) == (0, 0, 1)


def test_nothing_behind_a_wrong_password_is_handled(client: WireClient) -> None:
    client.send(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    client.send(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"\0alice\0guess"})
    client.send(ApiKey.METADATA, 9, {"topics": []})
    assert client.receive()[1].error_code == 0
    assert client.receive()[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()


def test_a_stranger_cannot_make_the_broker_keep_much(client: WireClient) -> None:
    client.socket.sendall((MAX_FRAME_BYTES + 1).to_bytes(4, "big") + bytes(16))
    assert client.is_closed_by_peer()


def test_who_is_known_may_send_large_frames(client: WireClient) -> None:
    shake_hands(client)
    authenticate(client)
    body = {"topics": [{"name": f"{number:0200}"} for number in range(3_000)], "allow_auto_topic_creation": False}
    assert len(client.call(ApiKey.METADATA, 9, body).topics) == 3_000


def test_a_listener_without_sasl_answers_illegal_sasl_state() -> None:
    with EmbeddedCluster() as kafka:
        client = WireClient(kafka.bootstrap_servers, timeout_s=30)
        answer = shake_hands(client)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert authenticate(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert works(client)
        client.close()


NOISE = st.lists(st.binary(min_size=0, max_size=80), min_size=1, max_size=4)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=NOISE, version=st.integers(0, 1), mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256"]))
def test_nonsense_ends_only_its_own_connection(
    connect: Connect,
    sasl_kafka: SecureKafka,
    caplog: pytest.LogCaptureFixture,
    tokens: list[bytes],
    version: int,
    mechanism: str,
) -> None:
    caplog.clear()
    caplog.set_level(logging.INFO)
    stranger, friend = connect(), connect()
    shake_hands(friend)
    authenticate(friend)
    try:
        shake_hands(stranger, mechanism, version=version)
        for token in tokens:
            if version == 0:
                stranger.socket.sendall(len(token).to_bytes(4, "big") + token)
            else:
                stranger.send(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": token})
        assert stranger.is_closed_by_peer()
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all was sent
    assert works(friend)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    stranger.close()
    friend.close()
