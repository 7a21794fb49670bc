"""What an SDK client is told that may do less than it asks for: who was refused, what it needs, how to grant it. The
same sentences in threads and on asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from acl_client import (
    ALL,
    DENY,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    SETTINGS,
    TOPIC,
    TRANSACTIONAL_ID,
    USERS,
    WRITE,
    Grant,
    UserClient,
)

from ottla import AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.errors import ConfigError
from ottla.testing import SecureKafka, secure_kafka

GIVES_UP_S = 60
TOPIC_DENIED, GROUP_DENIED = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def admin(kafka: SecureKafka) -> Iterator[UserClient]:
    client = UserClient(kafka.bootstrap_servers, "admin")
    yield client
    client.delete_acls()
    client.close()


@pytest.fixture
def of_bob(kafka: SecureKafka) -> dict[str, Any]:
    return dict(kafka.settings_of("bob", USERS["bob"]))


class Threads:
    """A client in threads, used for one thing."""

    def __init__(self, kafka: SecureKafka, settings: dict[str, Any]) -> None:
        self._servers, self._settings = kafka.bootstrap_servers, settings

    def send(self, **more: Any) -> None:
        with Producer(self._servers, settings=self._settings | more) as producer:
            if "transactional.id" in more:
                with producer.transaction(GIVES_UP_S):
                    producer.send("orders", b"x")
            else:
                producer.send("orders", b"x").result(GIVES_UP_S)

    def receive(self, group: str, topic: str = "orders", then: Callable[[], None] | None = None) -> Any:
        """The first record; with `then` the one after it."""
        consumer = Consumer(topic, group=group, bootstrap_servers=self._servers, settings=self._settings)
        with consumer:
            records = iter(consumer)
            first = next(records).raw_value
            if then is None:
                return first
            then()
            return next(records).raw_value


class OnAsyncio:
    """The same on asyncio."""

    def __init__(self, kafka: SecureKafka, settings: dict[str, Any]) -> None:
        self._servers, self._settings = kafka.bootstrap_servers, settings

    def send(self, **more: Any) -> None:
        async def on_loop() -> None:
            async with AsyncProducer(self._servers, settings=self._settings | more) as producer:
                if "transactional.id" in more:
                    async with producer.transaction():
                        producer.send("orders", b"x")
                else:
                    await producer.send("orders", b"x")

        asyncio.run(asyncio.wait_for(on_loop(), GIVES_UP_S))

    def receive(self, group: str, topic: str = "orders", then: Callable[[], None] | None = None) -> Any:
        async def on_loop() -> Any:
            async with AsyncConsumer(
                topic, group=group, bootstrap_servers=self._servers, settings=self._settings
            ) as consumer:
                records = aiter(consumer)
                first = (await anext(records)).raw_value
                if then is None:
                    return first
                await asyncio.to_thread(then)
                return (await anext(records)).raw_value

        return asyncio.run(asyncio.wait_for(on_loop(), GIVES_UP_S))


@pytest.fixture(params=[Threads, OnAsyncio], ids=["threads", "asyncio"])
def bob(request: pytest.FixtureRequest, kafka: SecureKafka, of_bob: dict[str, Any]) -> Any:
    return request.param(kafka, of_bob)


def refusal(act: Callable[[], Any]) -> str:
    """What the error says, which is of the kind that a retry does not mend."""
    with pytest.raises(ConfigError, match="refused User:bob") as refused:
        act()
    return str(refused.value)


def test_a_producer_without_any_acl_is_told_what_it_needs(bob: Any, kafka: SecureKafka) -> None:
    told = refusal(bob.send)
    assert kafka.bootstrap_servers in told
    assert "ottla acls create --allow-principal User:bob --producer --topic" in told


def test_a_producer_is_told_of_the_topic_that_it_may_not_write_to(bob: Any, admin: UserClient) -> None:
    admin.grant(Grant(IDEMPOTENT_WRITE))
    told = refusal(bob.send)
    assert TOPIC_DENIED in told
    assert "WRITE and DESCRIBE on topic orders" in told
    admin.grant(Grant(DESCRIBE, TOPIC, "orders"))
    assert TOPIC_DENIED in refusal(bob.send)
    admin.grant(Grant(WRITE, TOPIC, "orders"))
    bob.send()


def test_a_transactional_producer_is_told_of_its_id(bob: Any, admin: UserClient) -> None:
    admin.grant(Grant(WRITE, TOPIC, "orders"))
    told = refusal(lambda: bob.send(**{"transactional.id": "tx"}))
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in told
    assert "WRITE on transactional id tx" in told
    admin.grant(Grant(WRITE, TRANSACTIONAL_ID, "tx"))
    bob.send(**{"transactional.id": "tx"})


def test_a_consumer_is_told_of_the_group_that_it_may_not_join(bob: Any, admin: UserClient) -> None:
    admin.grant(Grant(READ, TOPIC, "orders"))
    told = refusal(lambda: bob.receive("billing"))
    assert GROUP_DENIED in told
    assert "READ on group billing" in told
    assert "--operation read --group billing" in told


def test_a_consumer_is_told_of_a_topic_that_it_may_not_see(bob: Any, admin: UserClient) -> None:
    admin.grant(Grant(READ, GROUP, "billing"))
    told = refusal(lambda: bob.receive("billing"))
    assert TOPIC_DENIED in told
    assert "READ and DESCRIBE on topic orders" in told
    assert "--consumer --topic orders --group billing" in told


def test_a_consumer_is_told_of_a_topic_that_it_may_see_but_not_read(bob: Any, admin: UserClient) -> None:
    admin.grant(Grant(READ, GROUP, "billing"), Grant(DESCRIBE, TOPIC, "orders"))
    told = refusal(lambda: bob.receive("billing"))
    assert TOPIC_DENIED in told
    assert "READ and DESCRIBE on topic orders" in told


def test_a_consumer_that_may_read_does(bob: Any, admin: UserClient, request: pytest.FixtureRequest) -> None:
    group = f"readers-{request.node.callspec.id}"
    admin.grant(Grant(ALL, GROUP, "readers-", pattern=4), Grant(READ, TOPIC, "orders"), Grant(WRITE, TOPIC, "orders"))
    bob.send()
    assert bob.receive(group) == b"x"
    admin.grant(Grant(READ, TOPIC, "orders", permission=DENY))
    assert TOPIC_DENIED in refusal(lambda: bob.receive(group))


@pytest.mark.representative("asyncio")
def test_a_consumer_whose_permission_is_taken_away_says_so_and_ends(
    bob: Any, kafka: SecureKafka, admin: UserClient
) -> None:
    topic = kafka.create_topic(kafka.fresh_name("withdrawn"))
    admin.grant(Grant(READ, GROUP, topic), Grant(READ, TOPIC, topic))
    kafka.produce(topic, [b"x"])

    def withdraw() -> None:
        admin.grant(Grant(READ, TOPIC, topic, permission=DENY))

    assert TOPIC_DENIED in refusal(lambda: bob.receive(topic, topic, withdraw))
