"""Payloads that a schema registry decides about."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from bridge_kit import KeptLog, values
from mqtt_client import StrictClient

from ottla import Avro
from ottla.bridge import Rule
from ottla.serdes import SerdeContext
from ottla.testing import Kafka, wait_until
from ottla.testing.registry import EmbeddedRegistry


@dataclass
class Reading:
    celsius: float


def test_while_the_registry_is_away_only_its_messages_wait(
    make_bridge, make_topic, kafka: Kafka, schema_registry: EmbeddedRegistry, caplog: pytest.LogCaptureFixture
):
    schema_registry._log = KeptLog()
    checked, plain, dead = make_topic(), make_topic(), make_topic()
    good = Avro(Reading, registry=schema_registry.url).serialize(Reading(21.5), SerdeContext(checked))
    assert good is not None
    rules = [Rule("sensors/#", checked, value=Avro(Reading, registry=schema_registry.url)), Rule("#", plain)]
    bridge = make_bridge(rules, dead_letter_topic=dead)
    with StrictClient(bridge.ports[0]) as client, StrictClient(bridge.ports[0], "other") as other:
        schema_registry.stop()
        client.publish("sensors/1", good)
        client.publish("a", b"behind it")
        wait_until(lambda: "bridge_registry_awaited" in caplog.text)
        other.publish("b", b"beside it")
        other.ack()
        client.ping()
        assert not client.acknowledged
        schema_registry.start()
        client.ack()
        client.ack()
        for payload in (b"no schema id", b"\0\0\1\1\1\2"):  # and an id that the registry does not have
            client.publish("sensors/1", payload)
            client.ack()
    assert values(kafka, checked, 1) == [good]
    assert sorted(values(kafka, plain, 2)) == [b"behind it", b"beside it"]
    found = kafka.consume_all(dead)
    assert {record.value for record in found} == {b"no schema id", b"\0\0\1\1\1\2"}
    assert all(dict(record.headers)["ottla-dlq-error-type"] for record in found)
