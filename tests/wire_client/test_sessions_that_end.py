"""Connections of the wire client whose sessions end (KIP-368): they authenticate again, between requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.cluster.time import VirtualClock
from ottla.errors import BrokerUnavailable
from ottla.testing import SecureKafka, secure_kafka
from ottla.testing.oidc import token_clock
from ottla.wire_client.client_settings import WireSettings, connection_settings
from ottla.wire_client.errors import AuthenticationRefused
from ottla.wire_client.net.authentication import LEAST_MS, SessionTimes
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ApiKey

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

SESSION_MS = 60_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
HANDSHAKE = ApiKey.SASL_HANDSHAKE


@pytest.fixture(scope="module")
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module")
def kafka(clock: VirtualClock) -> Iterator[SecureKafka]:
    reauth = dict.fromkeys(MECHANISMS, SESSION_MS)
    with secure_kafka("SASL_PLAINTEXT", mechanism=MECHANISMS, clock=clock, max_reauth_ms=reauth) as running:
        running.create_topic("t")
        yield running


class Watched:
    """Connections of one mechanism, and what they asked."""

    def __init__(self, kafka: SecureKafka, mechanism: Any) -> None:
        self.asked: list[ApiKey] = []
        settings = {
            "bootstrap.servers": kafka.bootstrap_servers,
            **kafka.settings_of("alice", "alice-secret", mechanism=mechanism),
        }
        wire = connection_settings(settings, on_exchange=lambda address, api, seconds: self.asked.append(api))
        self.wire: WireSettings = wire
        self.connection = Connection(*wire.bootstrap_servers[0], wire)

    def logins(self) -> int:
        return self.asked.count(HANDSHAKE)

    def works(self) -> bool:
        return len(self.connection.call(ApiKey.METADATA, {"topics": []}).brokers) == 1


@pytest.fixture(params=MECHANISMS)
def watched(kafka: SecureKafka, request: pytest.FixtureRequest) -> Iterator[Watched]:
    found = Watched(kafka, request.param)
    yield found
    found.connection.close()


def test_a_session_is_renewed_before_it_ends_on_the_same_connection(watched: Watched, clock: VirtualClock) -> None:
    descriptor = watched.connection.fileno()
    clock.advance(int(SESSION_MS * 0.8))
    assert watched.works()
    assert watched.logins() == 1
    clock.advance(int(SESSION_MS * 0.1))
    assert watched.works()
    assert watched.logins() == 2
    for _ in range(3):
        clock.advance(int(SESSION_MS * 0.9))
        assert watched.works()
    assert (watched.logins(), watched.connection.fileno()) == (5, descriptor)


def test_what_was_idle_past_the_end_authenticates_before_its_next_request(
    watched: Watched, clock: VirtualClock
) -> None:
    clock.advance(10 * SESSION_MS)
    assert watched.works()
    assert watched.logins() == 2


def test_requests_in_flight_get_their_responses_although_the_session_is_renewed_among_them(
    watched: Watched, clock: VirtualClock
) -> None:
    connection = watched.connection
    for _ in range(3):
        connection.send(ApiKey.METADATA, {"topics": []})
    clock.advance(int(SESSION_MS * 0.9))  # not urgent: those in flight are not waited for
    connection.send(ApiKey.API_VERSIONS, {})
    assert watched.logins() == 1
    clock.advance(int(SESSION_MS * 0.06))
    connection.send(ApiKey.METADATA, {"topics": []})
    assert watched.logins() == 2
    assert connection.in_flight == 5
    assert connection.has_bytes
    responses = [connection.receive() for _ in range(5)]
    assert [hasattr(response, "brokers") for response in responses] == [True, True, True, False, True]
    assert connection.in_flight == 0
    assert watched.works()


def test_several_small_requests_at_once_are_sent_in_a_renewed_session(watched: Watched, clock: VirtualClock) -> None:
    clock.advance(SESSION_MS)
    requests: list[tuple[ApiKey, dict[str, Any], int | None]] = [(ApiKey.METADATA, {"topics": []}, None)] * 5
    assert [len(answer.brokers) for answer in watched.connection.calls(requests)] == [1] * 5
    assert watched.logins() == 2


def test_a_password_that_was_changed_meanwhile_is_a_connection_that_was_lost(
    kafka: SecureKafka, clock: VirtualClock
) -> None:
    found = Watched(kafka, "PLAIN")
    found.connection._session._settings = found.wire.with_changes(sasl_password="another")  # type: ignore[union-attr]
    clock.advance(SESSION_MS)
    with pytest.raises(BrokerUnavailable, match="ended the session"):
        found.works()
    assert not found.connection.is_open
    with pytest.raises(AuthenticationRefused):
        Connection(*found.wire.bootstrap_servers[0], found.wire.with_changes(sasl_password="another"))


def test_a_session_without_an_end_is_not_renewed() -> None:
    clock = VirtualClock()
    with token_clock(clock), secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", clock=clock) as kafka:
        found = Watched(kafka, "PLAIN")
        clock.advance(days=1)
        assert found.works()
        assert found.logins() == 1
        found.connection.close()


@given(lifetime_ms=st.integers(1, 10**10), now_ms=st.integers(0, 10**13))
def test_a_session_is_renewed_before_its_end_and_no_sooner_than_brokers_allow(lifetime_ms: int, now_ms: int) -> None:
    times = SessionTimes(lifetime_ms=lifetime_ms, now_ms=now_ms)
    assert not times.should_renew(now_ms=now_ms + LEAST_MS - 1, is_busy=False)
    assert not times.should_renew(now_ms=now_ms + int(lifetime_ms * 0.84), is_busy=False)
    if lifetime_ms > 2 * LEAST_MS:
        last_ms = now_ms + lifetime_ms - 1
        assert times.should_renew(now_ms=last_ms, is_busy=True)
        assert times.should_renew(now_ms=now_ms + int(lifetime_ms * 0.86), is_busy=False)
