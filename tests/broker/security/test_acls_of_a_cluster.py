"""ACLs on several brokers: all of them have them, whichever was asked, whichever controller is active, also after a
restart; and the brokers themselves work together without any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from acl_client import (
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    SETTINGS,
    TOPIC,
    TRANSACTIONAL_ID,
    USERS,
    WRITE,
    Grant,
    UserClient,
    denials_in,
    errors_in,
)
from confluent_kafka import Consumer, Producer, TopicPartition
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster, Security
from broker_embedded.common.errors import StartupError
from ottla_wire.protocol import ApiKey, ErrorCode

SECURITY = Security("SASL_PLAINTEXT", mechanisms=("PLAIN",), users=USERS)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BOBS = Grant(READ, TOPIC, "orders")


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


class Clients:
    """One connection of a user to a broker, made when it is first needed and again after a restart."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._addresses = cluster.bootstrap_servers.split(",")
        self._opened: list[UserClient] = []

    def of(self, user: str, broker: int) -> UserClient:
        self._opened.append(UserClient(self._addresses[broker - 1], user))
        return self._opened[-1]

    def close(self) -> None:
        for client in self._opened:
            client.close()


@pytest.fixture
def three() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=SETTINGS, security=SECURITY) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        yield cluster


@pytest.fixture
def clients(three: EmbeddedCluster) -> Iterator[Clients]:
    connected = Clients(three)
    yield connected
    connected.close()


def settings_of(user: str, cluster: EmbeddedCluster) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "log_level": 0,
    }


def test_every_broker_has_them_and_so_has_the_next_controller(three: EmbeddedCluster, clients: Clients) -> None:
    first = three.controller_id
    asked = next(node for node in (1, 2, 3) if node != first)
    clients.of("admin", asked).grant(BOBS)
    for node in (1, 2, 3):
        admin = clients.of("admin", node)
        wait_until(lambda admin=admin: admin.describe_acls() == {BOBS})  # type: ignore[misc]
    three.kill(first)
    survivor = clients.of("admin", asked)
    more = Grant(WRITE, TOPIC, "orders")

    def is_granted() -> bool:
        return errors_in_of(survivor, more) == {ErrorCode.NONE}

    wait_until(is_granted)
    wait_until(lambda: survivor.describe_acls() == {BOBS, more})
    three.start_broker(first)
    wait_until(lambda: clients.of("admin", first).describe_acls() == {BOBS, more})


def errors_in_of(client: UserClient, grant: Grant) -> set[ErrorCode]:
    return {ErrorCode(each.error_code) for each in client.create_acls(grant)}


def test_what_the_controller_does_is_judged_where_it_was_asked_for(three: EmbeddedCluster, clients: Clients) -> None:
    elsewhere = next(node for node in (1, 2, 3) if node != three.controller_id)
    bob, admin = clients.of("bob", elsewhere), clients.of("admin", elsewhere)
    assert errors_in_of(bob, BOBS) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    mine = Grant(CREATE, TOPIC, "mine"), Grant(DELETE, TOPIC, "mine"), Grant(DESCRIBE_CONFIGS, TOPIC, "mine")
    admin.grant(*mine)
    wait_until(lambda: admin.describe_acls() == set(mine))
    topics = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("mine", "other")
    ]
    created = bob.call(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 20_000, "validate_only": False})
    assert {each.name: ErrorCode(each.error_code) for each in created.topics} == {
        "mine": ErrorCode.NONE,
        "other": DENIED,
    }
    assert next(each.num_partitions for each in created.topics if each.name == "mine") == 2
    body = {"topic_names": ["mine", "orders"], "timeout_ms": 20_000}
    wait_until(lambda: "mine" in {each.name for each in bob.call(ApiKey.METADATA, 9, ALL_TOPICS).topics})
    deleted = bob.call(ApiKey.DELETE_TOPICS, 5, body)
    assert {each.name: ErrorCode(each.error_code) for each in deleted.responses} == {
        "mine": ErrorCode.NONE,
        "orders": DENIED,
    }


ALL_TOPICS: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}


def test_brokers_replicate_and_coordinate_whatever_clients_may(three: EmbeddedCluster, clients: Clients) -> None:
    """A transaction of alice over three brokers needs every way in which they speak to each other."""
    admin = clients.of("admin", 1)
    grants = {
        Grant(WRITE, TOPIC, "orders", principal="User:alice"),
        Grant(READ, TOPIC, "orders", principal="User:alice"),
        Grant(READ, GROUP, "billing", principal="User:alice"),
        Grant(WRITE, TRANSACTIONAL_ID, "tx", principal="User:alice"),
    }
    admin.grant(*grants)
    for node in (1, 2, 3):
        client = clients.of("admin", node)
        wait_until(lambda client=client: client.describe_acls() == grants)  # type: ignore[misc]
    producer = Producer({**settings_of("alice", three), "transactional.id": "tx"})
    consumer = Consumer(
        {
            **settings_of("alice", three),
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("orders", b"%d" % number)
    consumer.subscribe(["orders"])
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 5)], metadata, 60)
    producer.commit_transaction(60)
    seen: list[bytes] = []

    def has_read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return seen[-1:] == [b"9"]

    wait_until(has_read)
    consumer.close()
    assert seen == [b"%d" % number for number in range(5, 10)], "from the offset that the transaction has committed"
    three.wait_for_isr("orders")


def test_acls_are_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedCluster(config=SETTINGS, security=SECURITY, data_dir=tmp_path) as cluster:
        first = Clients(cluster)
        first.of("admin", 1).grant(BOBS, Grant(WRITE, TOPIC, "orders"))
        first.of("admin", 1).delete_acls(operation=WRITE)
        first.close()
    with EmbeddedCluster(config=SETTINGS, security=SECURITY, data_dir=tmp_path) as cluster:
        again = Clients(cluster)
        assert again.of("admin", 1).describe_acls() == {BOBS}
        again.close()


# --- waiting, sessions


def fetch(*, wait_ms: int = 0, session_id: int = 0, epoch: int = -1, topics: bool = True) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1 if wait_ms else 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [{"topic": "orders", "partitions": [partition]}] if topics else [],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


@pytest.fixture
def one() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=SETTINGS, security=SECURITY) as cluster:
        cluster.create_topic("orders")
        yield cluster


def test_a_session_remembers_partitions_but_no_permission(one: EmbeddedCluster) -> None:
    clients = Clients(one)
    admin, bob = clients.of("admin", 1), clients.of("bob", 1)
    admin.grant(BOBS)
    begun = bob.call(ApiKey.FETCH, 11, fetch(epoch=0))
    assert begun.session_id != 0
    assert errors_in(begun) == {ErrorCode.NONE}
    admin.delete_acls()
    assert denials_in(bob.call(ApiKey.FETCH, 11, fetch(session_id=begun.session_id, epoch=1, topics=False))) == {DENIED}
    admin.grant(BOBS)
    again = bob.call(ApiKey.FETCH, 11, fetch(session_id=begun.session_id, epoch=2, topics=False))
    assert not denials_in(again)
    clients.close()


def test_what_was_allowed_when_a_fetch_began_to_wait_is_judged_again_when_there_is_something(
    one: EmbeddedCluster,
) -> None:
    clients = Clients(one)
    admin, bob = clients.of("admin", 1), clients.of("bob", 1)
    admin.grant(BOBS)
    bob.send(ApiKey.FETCH, 11, fetch(wait_ms=60_000))
    admin.delete_acls()
    producer = Producer(settings_of("admin", one))
    producer.produce("orders", b"secret")
    assert producer.flush(60) == 0
    _, answer = bob.receive()
    assert denials_in(answer) == {DENIED}
    assert not answer.responses[0].partitions[0].records
    clients.close()


# --- transactions that may be listed


def test_transactions_are_listed_to_whom_may_describe_them_with_topics_that_may_be_described(
    one: EmbeddedCluster,
) -> None:
    clients = Clients(one)
    admin, bob = clients.of("admin", 1), clients.of("bob", 1)
    producer = Producer({**settings_of("admin", one), "transactional.id": "tx"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"1")
    assert producer.flush(60) == 0

    def listed() -> list[str]:
        body = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        answer = bob.call(ApiKey.LIST_TRANSACTIONS, 1, body)
        return [each.transactional_id for each in answer.transaction_states]

    def topics() -> list[str]:
        answer = bob.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx"]})
        assert not denials_in(answer)
        return [each.topic for each in answer.transaction_states[0].topics]

    assert listed() == []
    admin.grant(Grant(DESCRIBE, TRANSACTIONAL_ID, "tx"))
    assert listed() == ["tx"]
    assert topics() == []
    admin.grant(Grant(DESCRIBE, TOPIC, "orders"))
    assert topics() == ["orders"]
    producer.abort_transaction(60)
    clients.close()


# --- settings


@pytest.mark.parametrize(
    ("name", "found", "wanted"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", "StandardAuthorizer, or nothing"),
        ("super.users", "admin", "User:admin;User:ANONYMOUS"),
        ("allow.everyone.if.no.acl.found", "perhaps", "true or false"),
    ],
)
def test_what_cannot_be_used_is_said_at_the_start(name: str, found: str, wanted: str) -> None:
    with pytest.raises(StartupError, match=name) as refused:
        EmbeddedCluster(config={**SETTINGS, name: found}, security=SECURITY)
    assert found in str(refused.value)
    assert wanted in str(refused.value)


def test_without_passwords_everybody_is_the_anonymous_user() -> None:
    with EmbeddedCluster(config={**SETTINGS, "super.users": "User:ANONYMOUS"}) as cluster:
        cluster.create_topic("orders")
        client = WireClient(cluster.bootstrap_servers, timeout_s=60)
        assert not denials_in(client.call(ApiKey.FETCH, 11, fetch()))
        client.close()
    with EmbeddedCluster(config=SETTINGS) as cluster:
        cluster.create_topic("orders")
        client = WireClient(cluster.bootstrap_servers, timeout_s=60)
        assert denials_in(client.call(ApiKey.FETCH, 11, fetch())) == {DENIED}
        client.close()


def test_with_no_acl_everybody_may_if_the_broker_is_told_so() -> None:
    with EmbeddedCluster(config={**SETTINGS, "allow.everyone.if.no.acl.found": "true"}, security=SECURITY) as cluster:
        cluster.create_topic("orders")
        clients = Clients(cluster)
        bob = clients.of("bob", 1)
        assert not denials_in(bob.call(ApiKey.FETCH, 11, fetch()))
        clients.of("admin", 1).grant(Grant(READ, TOPIC, "orders", principal="User:alice"))
        assert denials_in(bob.call(ApiKey.FETCH, 11, fetch())) == {DENIED}
        clients.close()
