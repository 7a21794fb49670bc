"""Clients that other people wrote publish to the listener."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_packages import folder_of

from ottla.bridge import Bridge, BridgeSettings, Rule
from ottla.testing import Kafka, wait_until

PUBLISHERS = Path(__file__).resolve().parent.parent / "kit" / "mqtt_publishers.py"


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


@pytest.mark.complete
@pytest.mark.parametrize(
    ("library", "requirement", "version"),
    [
        ("gmqtt", "gmqtt==0.8.0", 4),
        ("gmqtt", "gmqtt==0.8.0", 5),
        ("aiomqtt", "aiomqtt==2.5.1", 4),
        ("aiomqtt", "aiomqtt==2.5.1", 5),
        ("aiomqtt3", "aiomqtt==3.0.0a1", 5),
    ],
)
def test_clients_of_others(
    bridge: Bridge, kafka: Kafka, kafka_topic: str, library: str, requirement: str, version: int
):
    command = [sys.executable, str(PUBLISHERS), library, str(bridge.ports[0]), str(version), "50"]
    environment = {**os.environ, "PYTHONPATH": folder_of(requirement)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        try:
            wait_until(lambda: bridge.counts["mqtt-listen"].acknowledged == 50, timeout_s=60)
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    found = kafka.consume_all(kafka_topic)
    assert sorted(int(record.value) for record in found) == list(range(50))
    if version == 5:
        headers = dict(found[0].headers)
        assert (headers["unit"], headers["content-type"]) == (b"C", b"text/plain")
