"""The listener, over real sockets and a real broker."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from bridge_kit import values
from mqtt_client import StrictClient

from ottla import Bytes, Json, UnknownTopic
from ottla.bridge import Bridge, BridgeSettings, Rule
from ottla.bridge.mqtt.codes import V5, V311, PacketType, Property, Reason
from ottla.bridge.mqtt.packets import Ack, Disconnect, Will
from ottla.serdes.base import SerdeContext
from ottla.testing import Kafka, wait_until


@pytest.mark.parametrize("version", [V311, V5])
def test_messages_are_in_kafka_when_they_are_acknowledged(make_bridge, make_topic, kafka: Kafka, version: int):
    topic = make_topic(partitions=3)
    bridge = make_bridge([Rule("#", topic)])
    with StrictClient(bridge.ports[0], version=version) as client:
        for number in range(60):
            client.publish(f"s/{number % 7}", b"%d" % number, qos=1 + number % 2)
        for _ in range(60):
            assert client.ack().code == 0
        found = kafka.consume_all(topic)
        assert sorted(int(record.value) for record in found) == list(range(60))
        assert {record.key for record in found} == {b"s/%d" % number for number in range(7)}
        by_key = [int(record.value) for record in found if record.key == b"s/3"]
        assert by_key == sorted(by_key)
    wait_until(lambda: bridge.connections == 0)


def test_qos_0_is_sent_and_counted(make_bridge, make_topic, kafka: Kafka):
    topic = make_topic()
    bridge = make_bridge([Rule("#", topic)])
    with StrictClient(bridge.ports[0]) as client:
        for number in range(5):
            client.publish("a", b"%d" % number, qos=0)
        assert len(values(kafka, topic, 5)) == 5
    assert bridge.counts["mqtt-listen"].received == 5


def test_a_qos_2_message_that_is_sent_again_is_written_once(make_bridge, make_topic, kafka: Kafka):
    topic = make_topic()
    bridge = make_bridge([Rule("#", topic)])
    persistent: dict[str, Any] = {"clean_start": False, "properties": {Property.SESSION_EXPIRY: 60}}
    with StrictClient(bridge.ports[0], **persistent) as client:
        client.publish("a", b"1", qos=2, packet_id=9)
        client.ack()
    wait_until(lambda: bridge.connections == 0)
    with StrictClient(bridge.ports[0], **persistent) as client:
        assert client.connack.session_present
        client.publish("a", b"1", qos=2, packet_id=9, dup=True)
        client.ack()
        client.release(9)
        client.publish("a", b"2", qos=2, packet_id=9)
        client.ack()
    found = kafka.consume_all(topic)
    assert [record.value for record in found] == [b"1", b"2"]
    assert all(dict(record.headers)["ottla-id"] for record in found)
    assert bridge.counts["mqtt-listen"].repeated == 1


def test_what_kafka_refuses_has_a_reason_code_in_5(make_bridge, make_topic):
    topic = make_topic()
    rules = [Rule("a", topic), Rule("missing/+", "{1}"), Rule("json", topic, value=Json(int))]
    bridge = make_bridge(rules, producer_settings={"topic.metadata.propagation.max.ms": 200})
    with StrictClient(bridge.ports[0]) as client:
        codes = []
        for name, payload in (("a", b"1"), ("b", b"1"), ("json", b"x"), ("a", b"2"), ("missing/not-here", b"1")):
            client.publish(name, payload)
        for _ in range(5):
            codes.append(client.ack().code)
        assert codes == [0, Reason.TOPIC_NAME_INVALID, Reason.PAYLOAD_FORMAT_INVALID, 0, Reason.TOPIC_NAME_INVALID]


def test_a_topic_that_is_missing_stops_the_start(make_bridge):
    with pytest.raises(UnknownTopic, match=r"no message could be written: .* does not have not-there"):
        make_bridge([Rule("#", "not-there")])


def test_what_kafka_refuses_is_a_dead_letter_in_311(make_bridge, make_topic, kafka: Kafka):
    topic, dead = make_topic(), make_topic()
    bridge = make_bridge([Rule("a", topic), Rule("json", topic, value=Json(int))], dead_letter_topic=dead)
    with StrictClient(bridge.ports[0], version=V311) as client:
        client.publish("nowhere", b"1")
        client.publish("json", b"x")
        client.publish("a", b"2")
        for _ in range(3):
            client.ack()
        first, second = kafka.consume_all(dead)
        assert (first.value, second.value) == (b"1", b"x")
        headers = dict(second.headers)
        assert headers["ottla-dlq-kind"] == b"malformed"
        assert headers["mqtt-topic"] == b"json"
        assert headers["ottla-dlq-topic"] == topic.encode()
    assert bridge.counts["mqtt-listen"].dead_lettered == 2


class Raises(Bytes):
    """A serde that breaks its contract."""

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> Any:
        if data == b"bad":
            raise ValueError("no such unit")
        return data


def test_a_message_whose_serde_raises_is_a_dead_letter(make_bridge, make_topic, kafka: Kafka):
    topic, dead = make_topic(), make_topic()
    bridge = make_bridge([Rule("#", topic, value=Raises())], dead_letter_topic=dead)
    with StrictClient(bridge.ports[0]) as client:
        client.publish("a", b"bad")
        client.publish("a", b"good")
        for _ in range(2):
            client.ack()
    [letter] = kafka.consume_all(dead)
    assert dict(letter.headers)["ottla-dlq-error-message"] == b"the serde raised ValueError: no such unit"
    assert values(kafka, topic, 1) == [b"good"]


def test_without_a_dead_letter_topic_a_client_of_311_is_disconnected(make_bridge, make_topic):
    bridge = make_bridge([Rule("a", make_topic())])
    with StrictClient(bridge.ports[0], version=V311) as client:
        client.publish("a", b"1")
        client.ack()
        client.publish("nowhere", b"1")
        with pytest.raises(EOFError):
            client.ack()


def test_websocket(make_bridge, make_topic, kafka: Kafka):
    paho = pytest.importorskip("paho.mqtt.client")
    topic = make_topic()
    bridge = make_bridge([Rule("#", topic)], listen=["ws://127.0.0.1:0", "127.0.0.1:0"])
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, transport="websockets")
    client.connect("127.0.0.1", bridge.ports[0])
    client.loop_start()
    try:
        for size in (1, 200, 70_000):
            client.publish("a", b"x" * size, qos=1).wait_for_publish(20)
    finally:
        client.disconnect()
        client.loop_stop()
    assert [len(value) for value in values(kafka, topic, 3)] == [1, 200, 70_000]
    with socket.create_connection(("127.0.0.1", bridge.ports[0]), timeout=20) as web:
        web.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert web.recv(1_000).startswith(b"HTTP/1.1 400")
    with socket.create_connection(("127.0.0.1", bridge.ports[0]), timeout=20) as web:
        key = base64.b64encode(os.urandom(16))
        web.sendall(
            b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )
        assert web.recv(1_000).startswith(b"HTTP/1.1 101")
        web.sendall(b"\x82\xff" + b"\x7f" + b"\xff" * 11)  # a frame of 2^63 bytes
        assert web.recv(1_000) == b""


def test_a_client_id_is_taken_over(make_bridge, make_topic):
    bridge = make_bridge([Rule("#", make_topic())])
    with StrictClient(bridge.ports[0], "same") as first, StrictClient(bridge.ports[0], "same") as second:
        kind, packet = first.packet()
        assert kind == PacketType.DISCONNECT
        assert isinstance(packet, Disconnect)
        assert packet.code == Reason.SESSION_TAKEN_OVER
        second.publish("a", b"1")
        second.ack()


def test_a_will_is_published_for_a_client_that_is_lost(make_bridge, make_topic, kafka: Kafka):
    topic = make_topic()
    bridge = make_bridge([Rule("#", topic)])
    will = Will(topic="status", payload=b"gone", qos=1, retain=False)
    graceful = StrictClient(bridge.ports[0], "a", will=will)
    graceful.send(b"\xe0\0")
    graceful.close()
    lost = StrictClient(bridge.ports[0], "b", will=will)
    wait_until(lambda: bridge.connections == 1)
    lost.close()
    assert values(kafka, topic, 1) == [b"gone"]
    wait_until(lambda: bridge.connections == 0)
    assert bridge.counts["mqtt-listen"].acknowledged == 1


def test_a_stop_acknowledges_what_is_in_flight_and_sends_clients_away(make_topic, kafka: Kafka):
    topic = make_topic()
    bridge = Bridge(kafka.bootstrap_servers, BridgeSettings(listen=["127.0.0.1:0"], rules=[Rule("#", topic)]))
    bridge.start()
    client = StrictClient(bridge.ports[0])
    for number in range(50):
        client.publish("a", b"%d" % number)
    client.ack()
    bridge.close()
    acknowledged = 1
    while True:
        kind, packet = client.packet()
        if kind == PacketType.DISCONNECT:
            assert isinstance(packet, Disconnect)
            assert packet.code == Reason.SHUTTING_DOWN
            break
        assert isinstance(packet, Ack)
        acknowledged += 1
    assert len(kafka.consume_all(topic)) == bridge.counts["mqtt-listen"].acknowledged == acknowledged
    client.close()


def test_a_mapping_is_read_again(
    make_bridge, make_topic, kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    first, second = make_topic(), make_topic()
    path = tmp_path / "bridge.toml"
    path.write_text(f'[[map]]\nfrom = "#"\nto = "{first}"\n')

    def find_serde(name: str) -> Any:
        raise ImportError(name)

    bridge = make_bridge([], mapping_file=path, find_serde=find_serde)
    with StrictClient(bridge.ports[0]) as client:
        client.publish("a", b"1")
        client.ack()
        path.write_text("[[map]\n")
        bridge.reload()  # logged, and all is as it was
        path.write_text(f'[[map]]\nfrom = "#"\nto = "{second}"\nvalue = "shop.model:reading"\n')
        bridge.reload()  # its module raises
        client.publish("a", b"2")
        client.ack()
        path.write_text(f'[[map]]\nfrom = "#"\nto = "{second}"\n')
        bridge.reload()

        def arrives() -> bool:
            client.publish("a", b"3")
            client.ack()
            return len(kafka.consume_all(second)) > 0

        wait_until(arrives)
    assert values(kafka, first, 2)[:2] == [b"1", b"2"]
    assert [record.name for record in caplog.records if record.name == "asyncio"] == [], "no callback raised"


@pytest.mark.complete
def test_a_mapping_that_names_a_missing_topic_is_not_taken(
    make_bridge, make_topic, kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    first, second = make_topic(), make_topic()
    path = tmp_path / "bridge.toml"
    path.write_text(f'[[map]]\nfrom = "#"\nto = "{first}"\n')
    bridge = make_bridge([], mapping_file=path)
    with StrictClient(bridge.ports[0]) as client:
        path.write_text('[[map]]\nfrom = "#"\nto = "bridge.missing"\n')
        bridge.reload()
        wait_until(lambda: "does not have bridge.missing" in caplog.text)
        client.publish("a", b"1")
        client.ack()
        assert values(kafka, first, 1) == [b"1"]
        path.write_text('[[map]]\nfrom = "#"\nto = "bridge.missing"\n')
        bridge.reload()  # while this one is checked, the next is written
        path.write_text(f'[[map]]\nfrom = "#"\nto = "{second}"\n')
        bridge.reload()

        def arrives() -> bool:
            client.publish("a", b"2")
            client.ack()
            return len(kafka.consume_all(second)) > 0

        wait_until(arrives)
