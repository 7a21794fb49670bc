"""Clients that other people wrote publish to the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.bridge import Bridge, BridgeSettings, Rule
from ottla.testing import Kafka, wait_until


@pytest.fixture
def bridge(kafka: Kafka, kafka_topic: str) -> Iterator[Bridge]:
    made = BridgeSettings(listen=["127.0.0.1:0"], rules=[Rule("#", kafka_topic)])
    with Bridge(kafka.bootstrap_servers, made) as running:
        yield running


@pytest.mark.parametrize("version", [4, 5])
def test_paho(bridge: Bridge, kafka: Kafka, kafka_topic: str, version: int):
    paho: Any = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=version)
    client.connect("127.0.0.1", bridge.ports[0])
    client.loop_start()
    try:
        sent = [client.publish("a", b"%d" % number, qos=number % 3) for number in range(150)]
        for each in sent:
            each.wait_for_publish(30)
            assert each.is_published()
    finally:
        client.disconnect()
        client.loop_stop()
    wait_until(lambda: bridge.counts["mqtt-listen"].acknowledged == 150)
    assert sorted(int(record.value) for record in kafka.consume_all(kafka_topic)) == list(range(150))


@pytest.mark.parametrize("version", [4, 5])
async def test_gmqtt(bridge: Bridge, kafka: Kafka, kafka_topic: str, version: int):
    gmqtt: Any = pytest.importorskip(
        "gmqtt", reason="gmqtt is not installed: it brings a package `tests`, which hides this one"
    )
    client = gmqtt.Client("gmqtt")
    await client.connect("127.0.0.1", bridge.ports[0], version=version)
    properties = {"user_property": [("unit", "C")], "content_type": "text/plain"} if version == 5 else {}
    for number in range(50):
        client.publish("a", b"%d" % number, qos=number % 3, **properties)
    while bridge.counts["mqtt-listen"].acknowledged < 50:  # noqa: ASYNC110  # counted in another thread
        await asyncio.sleep(0.01)
    await client.disconnect()
    found = kafka.consume_all(kafka_topic)
    assert sorted(int(record.value) for record in found) == list(range(50))
    if version == 5:
        assert dict(found[0].headers)["unit"] == b"C"
