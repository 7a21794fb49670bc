"""kafka-python creates, finds and deletes ACLs, and hears of them when it produces and consumes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import GROUP, READ, SETTINGS, TOPIC, USERS, WRITE, Grant, UserClient

from ottla.testing import SecureKafka, secure_kafka

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates and 3.13 has again
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
    from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        yield running


def settings_of(user: str, kafka: SecureKafka) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": USERS[user],
    }


def test_acls_are_created_found_and_deleted(kafka: SecureKafka) -> None:
    admin = KafkaAdminClient(**settings_of("admin", kafka))
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    created = admin.create_acls([ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.ALLOW, orders)])
    assert (len(created["succeeded"]), created["failed"]) == (1, [])
    everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, orders)
    found, _ = admin.describe_acls(everything)
    assert [(acl.principal, acl.operation) for acl in found] == [("User:bob", ACLOperation.READ)]
    ((_, deleted, _),) = admin.delete_acls([everything])
    assert len(deleted) == 1
    assert admin.describe_acls(everything)[0] == []
    admin.close()


def test_who_may_not_is_told_and_who_may_goes_on(kafka: SecureKafka) -> None:
    admin = UserClient(kafka.bootstrap_servers, "admin")
    admin.grant(Grant(READ, GROUP, "billing"))
    producer = KafkaProducer(**settings_of("bob", kafka), enable_idempotence=False, retries=0)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send("orders", b"x").get(60)
    admin.grant(Grant(WRITE, TOPIC, "orders"))
    assert producer.send("orders", b"x").get(60).offset == 0
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        **settings_of("bob", kafka),
        group_id="billing",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    with pytest.raises(TopicAuthorizationFailedError):
        next(consumer)
    admin.grant(Grant(READ, TOPIC, "orders"))
    assert next(consumer).value == b"x"
    consumer.close()
    stranger = KafkaConsumer("orders", **settings_of("bob", kafka), group_id="reports", consumer_timeout_ms=60_000)
    with pytest.raises(GroupAuthorizationFailedError):
        next(stranger)
    stranger.close()
    admin.close()
