"""A whole service, with retry topics and dead letters, on brokers that want TLS and a password, in both shells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from secure_ways import WAYS

from ottla import App, CommitPolicy, Context, Json, RetryTopics
from ottla.testing import SecureKafka, secure_kafka

SHELLS = ["threads", "asyncio", "columns"]


@pytest.fixture(scope="module", params=["mtls", "scram-512", "oauthbearer"])
def kafka(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    with secure_kafka(**WAYS[request.param]) as running:
        yield running


@pytest.mark.representative("threads-mtls")
def test_what_fails_is_retried_and_what_never_works_is_set_aside(shell: Any, kafka: SecureKafka, wait: Any) -> None:
    topic, dead = (kafka.create_topic(kafka.fresh_name(name)) for name in ("orders", "dead"))
    handled: list[tuple[int, int]] = []
    app = App(
        kafka.fresh_name("service"),
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        dead_letter_topic=dead,
        settings=kafka.settings,  # those of the producer of dead letters, too
    )

    @app.handler(topic, value=Json(), retry_topics=RetryTopics(delays_s=(0.1,)))
    def handle(value: int, context: Context) -> None:
        if value == 2 or (value == 1 and context.attempt == 1):
            raise RuntimeError("not now")
        handled.append((value, context.attempt))

    shell.start(app)
    kafka.produce(topic, range(4), value=Json())
    assert [letter.value for letter in kafka.consume_all(dead, value=Json(), at_least=1, timeout_s=60)] == [2]
    wait(lambda: len(handled) == 3, timeout_s=60)
    assert sorted(handled) == [(0, 1), (1, 2), (3, 1)]
