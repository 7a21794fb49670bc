"""The console of a cluster that wants tokens: it reads, writes and goes on when the token has been replaced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_kit import Running, running_console

from broker_embedded.cluster.time import VirtualClock
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions
from ottla.testing import SecureKafka, secure_kafka, wait_until

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def kafka(clock: VirtualClock) -> Iterator[SecureKafka]:
    with secure_kafka(mechanism="OAUTHBEARER", clock=clock) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def console(kafka: SecureKafka) -> Iterator[Running]:
    settings = cluster_settings(kafka.bootstrap_servers, kafka.settings, environ={})
    with running_console(settings, ConsoleOptions(may_write=True)) as running:
        yield running


def topics_of(console: Running) -> list[str]:
    return [each["topic"] for each in console.get("topics")["items"]]


def problem_of(console: Running) -> str | None:
    found: str | None = console.get("topics")["state"]["problem"]
    return found


def test_its_pages_are_those_of_any_cluster_before_and_after_a_token_ends(
    console: Running, kafka: SecureKafka, clock: VirtualClock
) -> None:
    endpoint = kafka.endpoint
    assert endpoint is not None
    assert "orders" in topics_of(console)
    assert endpoint.asked == 1
    clock.advance(int(endpoint.life_s * 2_000))
    kafka.create_topic("returns")
    wait_until(lambda: "returns" in topics_of(console), timeout_s=30, what="the new topic on the page")
    assert endpoint.issued > 1


@pytest.mark.complete
def test_an_endpoint_that_is_down_is_an_answer_and_not_the_end_of_the_console(
    console: Running, kafka: SecureKafka, clock: VirtualClock
) -> None:
    endpoint = kafka.endpoint
    assert endpoint is not None
    assert "orders" in topics_of(console)
    endpoint.fail(503)
    clock.advance(int(endpoint.life_s * 2_000))
    wait_until(lambda: problem_of(console), timeout_s=30, what="a problem on the page")
    assert "HTTP 503" in str(problem_of(console))
    assert "alice-secret" not in str(problem_of(console))
    endpoint.recover()
    clock.advance(60_000)
    wait_until(lambda: problem_of(console) is None, timeout_s=30, what="a page without a problem")
    assert "orders" in topics_of(console)
