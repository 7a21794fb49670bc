"""A client that is made while no token is to be had: the endpoint's answer is the reason that it gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from ottla import Consumer, Producer
from ottla.errors import AuthenticationError, BrokerUnavailable
from ottla.testing import SecureKafka, secure_kafka, wait_until
from ottla.testing.oidc import OidcEndpoint
from ottla.tokens.shared import forget_sources

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="OAUTHBEARER") as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def endpoint(kafka: SecureKafka) -> Iterator[OidcEndpoint]:
    assert kafka.endpoint is not None
    forget_sources()
    yield kafka.endpoint
    kafka.endpoint.recover()
    forget_sources()


def write(kafka: SecureKafka) -> None:
    with Producer(kafka.bootstrap_servers, settings=kafka.settings) as producer:
        producer.send("orders", b"1").result(30)


def read(kafka: SecureKafka) -> None:
    with Consumer("orders", group="g", bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings) as consumer:
        consumer.poll(0.1)


CLIENTS = pytest.mark.parametrize("client", [write, read])


@CLIENTS
def test_a_refusal_is_raised_at_once(
    kafka: SecureKafka, endpoint: OidcEndpoint, client: Callable[[SecureKafka], None]
) -> None:
    endpoint.fail(401, "invalid_client")
    with pytest.raises(AuthenticationError, match="HTTP 401, invalid_client"):
        client(kafka)
    assert endpoint.asked


@pytest.mark.representative("read")
@CLIENTS
def test_an_endpoint_that_comes_back_is_waited_for(
    kafka: SecureKafka, endpoint: OidcEndpoint, client: Callable[[SecureKafka], None]
) -> None:
    endpoint.fail(503)
    asked = endpoint.asked
    failed: list[Exception] = []

    def run() -> None:
        try:
            client(kafka)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: endpoint.asked > asked + 1, timeout_s=30, what="a second request")
    endpoint.recover()
    thread.join(60)
    assert failed == []


@pytest.mark.complete
@CLIENTS
def test_an_endpoint_that_stays_away_is_an_outage_with_its_reason(
    kafka: SecureKafka, endpoint: OidcEndpoint, client: Callable[[SecureKafka], None]
) -> None:
    endpoint.fail(503)
    with pytest.raises(BrokerUnavailable, match="HTTP 503"):
        client(kafka)
