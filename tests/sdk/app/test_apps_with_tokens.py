"""Services whose tokens expire: while idle, while fetching, while the token endpoint is down. Tokens live for seconds,
by the real clock, which librdkafka follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import App, CommitPolicy, Context, Json
from ottla.errors import AuthenticationError
from ottla.testing import SecureKafka, secure_kafka
from ottla.testing.oidc import OidcEndpoint
from ottla.tokens.shared import forget_sources

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

SHELLS = ["threads", "asyncio", "columns"]
LIFE_S = 2.0

pytestmark = pytest.mark.complete


@pytest.fixture
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka(mechanism="OAUTHBEARER") as running:
        assert running.endpoint is not None
        yield running


@pytest.fixture
def endpoint(kafka: SecureKafka) -> OidcEndpoint:
    assert kafka.endpoint is not None
    return kafka.endpoint


def steady(kafka: SecureKafka) -> SecureKafka:
    """The same Kafka for the test's own clients, whose tokens are good for long and need no endpoint."""
    endpoint = kafka.endpoint
    assert endpoint is not None
    found = SecureKafka(kafka.cluster, kafka.security, kafka.certificates, endpoint)  # type: ignore[arg-type]
    names = ("security.protocol", "sasl.mechanism", "ssl.ca.location")
    found.settings = {name: kafka.settings[name] for name in names}
    found.settings["sasl.oauthbearer.token"] = lambda: endpoint.issue("alice", life_s=600)  # type: ignore[assignment]
    return found


def service(kafka: SecureKafka, topic: str, handled: list[int]) -> App:
    app = App(
        kafka.fresh_name("service"),
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        settings=kafka.settings,
    )

    @app.handler(topic, value=Json())
    def handle(value: int, context: Context) -> None:
        handled.append(value)

    return app


def test_a_service_goes_on_through_many_tokens(
    kafka: SecureKafka, endpoint: OidcEndpoint, shell: Any, wait: Any
) -> None:
    endpoint.life_s = LIFE_S
    own = steady(kafka)
    topic, handled = own.create_topic("orders"), list[int]()
    app = service(kafka, topic, handled)
    shell.start(app)
    for number in range(5):
        own.produce(topic, [number], value=Json())
        wait(lambda number=number: handled == [*range(number + 1)], timeout_s=60)
        seen = endpoint.issued
        wait(lambda seen=seen: endpoint.issued > seen, timeout_s=60)  # idle until the next token
    assert app.health().is_ready


def test_a_token_endpoint_that_is_down_for_longer_than_a_token_lives_is_an_outage(
    kafka: SecureKafka, endpoint: OidcEndpoint, shell: Any, wait: Any
) -> None:
    endpoint.life_s = LIFE_S
    own = steady(kafka)
    topic, handled = own.create_topic("orders"), list[int]()
    app = service(kafka, topic, handled)
    shell.start(app)
    own.produce(topic, [0], value=Json())
    wait(lambda: handled == [0], timeout_s=60)
    endpoint.fail(503)
    seen = endpoint.asked
    wait(lambda: endpoint.asked > seen + 3, timeout_s=60)  # its pauses add up to more than a token's life
    own.produce(topic, [1, 2, 3], value=Json())
    assert not shell.has_ended(app)
    endpoint.recover()
    wait(lambda: handled == [0, 1, 2, 3], timeout_s=90)
    assert app.health().is_ready


@pytest.mark.representative("threads")
def test_a_token_endpoint_that_is_down_at_the_start_is_waited_for(
    kafka: SecureKafka, endpoint: OidcEndpoint, shell: Any, wait: Any
) -> None:
    own = steady(kafka)
    topic, handled = own.create_topic("orders"), list[int]()
    own.produce(topic, [0], value=Json())
    endpoint.fail(503)
    app = service(kafka, topic, handled)
    shell.start(app)
    wait(lambda: endpoint.asked > 2, timeout_s=60)
    assert not app.health().is_ready
    endpoint.recover()
    wait(lambda: handled == [0], timeout_s=60)
    assert app.health().is_ready


@pytest.mark.representative("threads")
def test_a_service_for_another_audience_does_not_start(kafka: SecureKafka, endpoint: OidcEndpoint, shell: Any) -> None:
    topic = kafka.create_topic("orders")
    endpoint.audience = "another"
    app = service(kafka, topic, [])
    forget_sources()
    shell.start(app)
    error = shell.error_of(app, timeout_s=60)
    assert isinstance(error, AuthenticationError)
    assert "refused the token of 'alice'" in str(error)


def test_a_token_that_is_revoked_is_replaced(kafka: SecureKafka, endpoint: OidcEndpoint, shell: Any, wait: Any) -> None:
    own = steady(kafka)
    topic, handled = own.create_topic("orders"), list[int]()
    app = service(kafka, topic, handled)
    shell.start(app)
    own.produce(topic, [0], value=Json())
    wait(lambda: handled == [0], timeout_s=60)
    endpoint.rotate_keys(keep_old=False)
    assert kafka.cluster is not None
    own.produce(topic, [1], value=Json())
    kafka.cluster.stop_broker(1)  # every client has to log in again
    kafka.cluster.start_broker(1)
    wait(lambda: handled == [0, 1], timeout_s=90)
