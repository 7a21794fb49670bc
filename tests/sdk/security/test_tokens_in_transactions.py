"""Tokens that expire in a transaction, and sessions with them: nothing is lost, and nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from both_shells import ThreadedProducer

from ottla import AsyncProducer
from ottla.testing import SecureKafka, secure_kafka, wait_until_async

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

LIFE_S = 2.0
PRODUCERS = {"threads": ThreadedProducer, "asyncio": AsyncProducer}

pytestmark = pytest.mark.complete


@pytest.fixture
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka(mechanism="OAUTHBEARER") as running:
        yield running


@pytest.mark.parametrize("shell", PRODUCERS)
async def test_a_transaction_outlives_the_token_that_it_began_with(kafka: SecureKafka, shell: str) -> None:
    endpoint = kafka.endpoint
    assert endpoint is not None
    endpoint.life_s = LIFE_S
    topic = await kafka.create_topic_async("orders")
    settings: dict[str, Any] = {**kafka.settings, "transactional.id": f"orders-{shell}", "client.id": "of-its-own"}
    producer = PRODUCERS[shell](kafka.bootstrap_servers, settings=settings)
    async with producer:
        for number in range(2):
            async with producer.transaction():
                await producer.send(topic, b"before %d" % number)
                seen = endpoint.issued
                # The token that the transaction began with is over then.
                await wait_until_async(lambda seen=seen: endpoint.issued >= seen + 2, timeout_s=30)
                await producer.send(topic, b"after %d" % number)
    found = await kafka.consume_all_async(topic, at_least=4, timeout_s=30)
    assert [record.value for record in found] == [b"before 0", b"after 0", b"before 1", b"after 1"]
