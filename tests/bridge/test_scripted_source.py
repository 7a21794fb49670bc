"""The subscriber, with a broker whose packets the test chooses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.bridge import Bridge, BridgeSettings, ListenerLimits, MqttSource, Rule, source_url
from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V5, V311, PacketType, Property, Reason
from ottla.bridge.mqtt.packet_frames import Frame, Framer
from ottla.bridge.mqtt.packets import Connack, Connect, Publish
from ottla.testing import Kafka, wait_until


class ScriptedSource:
    """One connection of a bridge, accepted and subscribed. Every read has a limit of time."""

    def __init__(self, listening: socket.socket, version: int) -> None:
        self._socket, _ = listening.accept()
        self._socket.settimeout(20)
        self._framer = Framer(max_packet_bytes=1 << 20)
        self._frames: list[Frame] = []
        first, body = self.frame()
        assert first >> 4 == PacketType.CONNECT
        self.connect: Connect = decoding.decode_connect(first & 15, body)
        self.send(encoding.encode_connack(Connack(code=0), version))
        first, body = self.frame()
        assert first >> 4 == PacketType.SUBSCRIBE
        packet_id = int.from_bytes(body[:2], "big")
        self.send(encoding.encode_suback(PacketType.SUBACK, packet_id, [2], version))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> Frame:
        while not self._frames:
            data = self._socket.recv(65_536)
            if not data:
                raise EOFError("the bridge closed the connection")
            self._frames += self._framer.feed(data)
        return self._frames.pop(0)

    def ack(self) -> tuple[PacketType, int]:
        """Return the kind and the packet id of the next acknowledgement."""
        first, body = self.frame()
        return PacketType(first >> 4), int.from_bytes(body[:2], "big")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def subscribed(kafka: Kafka, topic: str, dead: str, version: int, limits: ListenerLimits) -> Iterator[ScriptedSource]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        url = source_url(f"mqtt://127.0.0.1:{listening.getsockname()[1]}", kind="mqtt")
        source = MqttSource(url=url, filters=["#"], client_id="bridge", qos=2, version=version)
        settings = BridgeSettings(
            sources=[source], rules=[Rule("#", topic)], dead_letter_topic=dead, limits=limits, drain_s=1
        )
        with Bridge(kafka.bootstrap_servers, settings):
            broker = ScriptedSource(listening, version)
            try:
                yield broker
            finally:
                broker.close()
        assert "ottla-bridge" not in {thread.name for thread in threading.enumerate()}, "it stops, connected or not"


@pytest.mark.parametrize("version", [V311, V5])
def test_a_message_behind_a_repeated_one_of_qos_2_is_written(make_topic, kafka: Kafka, version: int):
    topic = make_topic()
    with subscribed(kafka, topic, make_topic(), version, ListenerLimits()) as broker:
        once = Publish("a", b"once", qos=2, packet_id=1)
        broker.send(encoding.encode_publish(once, version))
        assert broker.ack() == (PacketType.PUBREC, 1)
        once.dup = True
        behind = Publish("b", b"behind", qos=1, packet_id=2)
        broker.send(encoding.encode_publish(once, version) + encoding.encode_publish(behind, version))
        assert broker.ack() == (PacketType.PUBREC, 1)
        assert broker.ack() == (PacketType.PUBACK, 2)
        assert sorted(record.value for record in kafka.consume_all(topic)) == [b"behind", b"once"]


def test_the_limit_of_packets_is_that_of_the_settings(make_topic, kafka: Kafka):
    limits = ListenerLimits(max_packet_bytes=5_000)
    with subscribed(kafka, make_topic(), make_topic(), V5, limits) as broker:
        assert broker.connect.properties[Property.MAXIMUM_PACKET_SIZE] == 5_000


def test_a_session_that_another_client_takes_is_named(make_topic, kafka: Kafka, caplog: pytest.LogCaptureFixture):
    with subscribed(kafka, make_topic(), make_topic(), V5, ListenerLimits()) as broker:
        broker.send(encoding.encode_disconnect(Reason.SESSION_TAKEN_OVER, V5))
        wait_until(lambda: "bridge_source_lost" in caplog.text)
    assert "another client has connected with this client id: each bridge needs its own" in caplog.text


def test_a_mapping_without_a_dead_letter_topic_is_not_read_again(
    make_topic, kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rule = f'[[map]]\nfrom = "#"\nto = "{make_topic()}"\n'
    path = tmp_path / "bridge.toml"
    path.write_text(f'dead-letter-topic = "{make_topic()}"\n{rule}')
    source = MqttSource(url=source_url("mqtt://127.0.0.1:1", kind="mqtt"), filters=["#"], client_id="bridge")
    with Bridge(kafka.bootstrap_servers, BridgeSettings(sources=[source], mapping_file=path)) as bridge:
        path.write_text(rule)
        bridge.reload()
        wait_until(lambda: "bridge_reload" in caplog.text)
    assert "bridge_reload_failed" in caplog.text
    assert "dead-letter-topic: wanted one" in caplog.text
