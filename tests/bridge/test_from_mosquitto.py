"""Messages of a real mosquitto into Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_brokers import Mosquitto

from ottla import Json
from ottla.bridge import Bridge, BridgeSettings, MqttSource, Rule, source_url
from ottla.testing import Kafka, wait_until

pytestmark = pytest.mark.complete


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    server = Mosquitto(tmp_path / "mosquitto")
    yield server
    server.stop(signal.SIGKILL)


def settings(mosquitto: Mosquitto, topic: str, dead: str, client_id: str = "bridge", **of: Any) -> BridgeSettings:
    url = source_url(f"mqtt://127.0.0.1:{mosquitto.port}", kind="mqtt")
    rules = of.pop("rules", [Rule("#", topic)])
    source = MqttSource(url=url, filters=["s/#"], client_id=client_id, **of)
    return BridgeSettings(sources=[source], rules=rules, dead_letter_topic=dead)


def lines(*numbers: int) -> str:
    return "".join(f"{number}\n" for number in numbers)


@pytest.mark.representative
@pytest.mark.parametrize("version", [4, 5])
def test_messages_of_every_qos_arrive(mosquitto: Mosquitto, make_topic, kafka: Kafka, version: int):
    topic, dead = make_topic(), make_topic()
    with Bridge(kafka.bootstrap_servers, settings(mosquitto, topic, dead, qos=2, version=version)) as bridge:
        wait_until(lambda: bridge.health().is_ready, timeout_s=30)
        for qos in range(3):
            mosquitto.publish("s/a", lines(*range(100 * qos, 100 * qos + 100)), "-q", str(qos))
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged == 300, timeout_s=60)
    assert [int(record.value) for record in kafka.consume_all(topic)] == list(range(300))


def test_what_came_while_the_bridge_was_away_arrives(mosquitto: Mosquitto, make_topic, kafka: Kafka):
    topic, dead = make_topic(), make_topic()
    made = settings(mosquitto, topic, dead)
    with Bridge(kafka.bootstrap_servers, made) as bridge:
        wait_until(lambda: bridge.health().is_ready, timeout_s=30)
    mosquitto.publish("s/a", lines(*range(200)), "-q", "1")
    with Bridge(kafka.bootstrap_servers, made) as bridge:
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged == 200, timeout_s=60)
        # The broker dies; it is connected and subscribed to again.
        mosquitto.stop(signal.SIGKILL)
        wait_until(lambda: not bridge.health().is_ready, timeout_s=30)
        mosquitto.start()
        wait_until(lambda: bridge.health().is_ready, timeout_s=60)
        mosquitto.publish("s/a", lines(*range(200, 220)), "-q", "1")
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged >= 220, timeout_s=60)
    assert {int(record.value) for record in kafka.consume_all(topic)} == set(range(220))


def test_two_bridges_share_the_messages(mosquitto: Mosquitto, make_topic, kafka: Kafka):
    topic, dead = make_topic(), make_topic()
    first = Bridge(kafka.bootstrap_servers, settings(mosquitto, topic, dead, "one", group="g"))
    second = Bridge(kafka.bootstrap_servers, settings(mosquitto, topic, dead, "two", group="g"))
    with first, second:
        wait_until(lambda: first.health().is_ready and second.health().is_ready, timeout_s=30)
        mosquitto.publish("s/a", lines(*range(200)), "-q", "1")
        counts = [each.counts["mqtt-connect"] for each in (first, second)]
        wait_until(lambda: sum(each.acknowledged for each in counts) == 200, timeout_s=60)
        assert all(each.acknowledged > 0 for each in counts)
    assert sorted(int(record.value) for record in kafka.consume_all(topic)) == list(range(200))


def test_what_does_not_decode_is_a_dead_letter_and_acknowledged(mosquitto: Mosquitto, make_topic, kafka: Kafka):
    topic, dead = make_topic(), make_topic()
    made = settings(mosquitto, topic, dead, rules=[Rule("#", topic, value=Json(int))])
    with Bridge(kafka.bootstrap_servers, made) as bridge:
        wait_until(lambda: bridge.health().is_ready, timeout_s=30)
        mosquitto.publish("s/a", "1\nx\n2\n", "-q", "1")
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged == 2, timeout_s=60)
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged == 2, timeout_s=60)
        wait_until(lambda: bridge.counts["mqtt-connect"].dead_lettered == 1, timeout_s=60)
    assert [record.value for record in kafka.consume_all(dead)] == [b"x"]


def test_what_kafka_refuses_is_a_dead_letter_and_acknowledged(mosquitto: Mosquitto, make_topic, kafka: Kafka):
    topic, dead = make_topic(config={"max.message.bytes": "200000"}), make_topic()
    with Bridge(kafka.bootstrap_servers, settings(mosquitto, topic, dead)) as bridge:
        wait_until(lambda: bridge.health().is_ready, timeout_s=30)
        large = os.urandom(150_000).hex()  # no compression makes it fit
        mosquitto.publish("s/a", f"small\n{large}\nlast\n", "-q", "1")
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged == 2, timeout_s=60)
        wait_until(lambda: bridge.counts["mqtt-connect"].acknowledged == 2, timeout_s=60)
        wait_until(lambda: bridge.counts["mqtt-connect"].dead_lettered == 1, timeout_s=60)
    assert [record.value for record in kafka.consume_all(topic)] == [b"small", b"last"]
    assert [record.value for record in kafka.consume_all(dead)] == [large.encode()]


def test_nothing_is_lost_when_the_bridge_is_killed(mosquitto: Mosquitto, make_topic, kafka: Kafka):
    topic, dead = make_topic(), make_topic()
    where = ["-b", kafka.bootstrap_servers, "--connect", f"mqtt://127.0.0.1:{mosquitto.port}", "--subscribe", "s/#"]
    options = ["--client-id", "bridge", "--map", f"#={topic}", "--dead-letter-topic", dead]
    command = [sys.executable, "-m", "ottla", "bridge", "mqtt", *where, *options]

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert any("bridge_source_connected" in line for line in process.stderr)
        return process

    def written() -> set[int]:
        return {int(record.value) for record in kafka.consume_all(topic)}

    process = start()
    try:
        for round_number in range(3):
            first = round_number * 2_000
            mosquitto.publish("s/a", lines(*range(first, first + 2_000)), "-q", "1")
            wait_until(lambda first=first: len(written()) > first, timeout_s=60)
            process.kill()
            process.communicate()
            process = start()
        wait_until(lambda: written() == set(range(6_000)), timeout_s=60)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("options", [("-V", "mqttv311"), ("-V", "mqttv5")])
def test_mosquitto_pub_publishes_to_the_listener(
    mosquitto: Mosquitto, make_topic, kafka: Kafka, options: tuple[str, ...]
):
    topic = make_topic()
    made = BridgeSettings(listen=["127.0.0.1:0"], rules=[Rule("#", topic)])
    with Bridge(kafka.bootstrap_servers, made) as bridge:
        for qos in range(3):
            numbers = lines(*range(100 * qos, 100 * qos + 100))
            mosquitto.publish_to(bridge.ports[0], "s/a", numbers, "-q", str(qos), *options)
        wait_until(lambda: bridge.counts["mqtt-listen"].acknowledged == 300, timeout_s=60)
    assert sorted(int(record.value) for record in kafka.consume_all(topic)) == list(range(300))
