"""The listener, over real sockets and a real broker."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mqtt_client import StrictClient

from broker_embedded.cluster import EmbeddedCluster
from ottla import Bytes, Json, UnknownTopic
from ottla.bridge import Bridge, BridgeSettings, ListenerLimits, Rule, TlsFiles
from ottla.bridge.listener.logins import Login
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V5, V311, PacketType, Property, Reason
from ottla.bridge.mqtt.packets import Ack, Connect, Disconnect, Will
from ottla.serdes.base import SerdeContext
from ottla.testing import Kafka, wait_until


@pytest.fixture
def make_bridge(kafka: Kafka) -> Iterator[Callable[..., Bridge]]:
    with ExitStack() as stack:

        def make(rules: list[Rule], *, servers: str | None = None, **settings: Any) -> Bridge:
            settings.setdefault("listen", ["127.0.0.1:0"])
            made = BridgeSettings(rules=rules, **settings)
            return stack.enter_context(Bridge(servers or kafka.bootstrap_servers, made))

        yield make


def values(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    """The values of a topic, once there are so many."""
    found: list[bytes] = []

    def are_there() -> bool:
        found[:] = [record.value for record in kafka.consume_all(topic)]
        return len(found) >= count

    wait_until(are_there)
    return found


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


def user_line(name: str, password: str, salt: bytes) -> str:
    """A user's line, as `mosquitto_passwd` writes it."""
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101, 64)
    return f"{name}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def test_users_of_a_file_may_publish_and_others_not(make_bridge, make_topic, tmp_path: Path):
    users = tmp_path / "users"
    users.write_text(user_line("ann", "right", b"salt" * 3) + "\n")
    bridge = make_bridge([Rule("#", make_topic())], users_file=users)
    port = bridge.ports[0]
    with StrictClient(port, username="ann", password=b"right") as client:
        assert client.connack.code == 0
        client.publish("a", b"1")
        client.ack()
    for name, password in (("ann", b"wrong"), ("bob", b"right"), (None, None)):
        with StrictClient(port, username=name, password=password) as client:
            assert client.connack.code == Reason.BAD_LOGIN
    with StrictClient(port, version=V311, username="ann", password=b"wrong") as client:
        assert client.connack.code == 5
    users.write_text(user_line("bob", "right", b"salt" * 3) + "\n")
    bridge.reload()

    def bob_is_known() -> bool:
        with StrictClient(port, username="bob", password=b"right") as client:
            return client.connack.code == 0

    wait_until(bob_is_known)


def test_a_function_decides_about_logins(make_bridge, make_topic):
    seen: list[Login] = []

    async def decide(login: Login) -> bool:
        seen.append(login)
        if login.client_id == "raises":
            raise ValueError("no")
        return login.client_id == "good"

    bridge = make_bridge([Rule("#", make_topic())], authenticate=decide)
    codes = []
    for name in ("good", "bad", "raises"):
        with StrictClient(bridge.ports[0], name) as client:
            codes.append(client.connack.code)
    assert codes == [0, Reason.BAD_LOGIN, Reason.BAD_LOGIN]
    assert seen[0].address == "127.0.0.1"


def test_tls_with_client_certificates(make_bridge, make_topic, kafka: Kafka, tmp_path: Path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = authority.issue_cert("localhost")
    server.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    client_cert = authority.issue_cert("device-7@example.org", common_name="device-7")
    topic = make_topic()
    tls = TlsFiles(certificate=tmp_path / "server.pem", client_ca=tmp_path / "ca.pem")
    bridge = make_bridge([Rule("#", topic, key="{user}")], tls=tls, listen=["mqtts://127.0.0.1:0"])
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
        StrictClient(bridge.ports[0], tls=context)
    client_cert.configure_cert(context)
    with StrictClient(bridge.ports[0], tls=context) as client:
        client.publish("a", b"1")
        client.ack()
    assert kafka.consume_all(topic)[0].key == b"device-7"


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


def test_a_silent_client_and_one_too_many_are_disconnected(make_bridge, make_topic):
    limits = ListenerLimits(connect_timeout_s=0.2)
    bridge = make_bridge([Rule("#", make_topic())], limits=limits, max_connections=2)
    port = bridge.ports[0]
    with StrictClient(port, connect=False) as silent, StrictClient(port, "slow", keep_alive_s=1) as slow:
        with StrictClient(port, connect=False) as third, pytest.raises((EOFError, ConnectionError)):
            third.frame()
        with pytest.raises(EOFError):
            silent.frame()
        kind, packet = slow.packet()
        assert kind == PacketType.DISCONNECT
        assert isinstance(packet, Disconnect)
        assert packet.code == Reason.KEEP_ALIVE_TIMEOUT
    wait_until(lambda: bridge.connections == 0)


def test_hostile_clients_harm_nobody_else(make_bridge, make_topic, kafka: Kafka):
    topic = make_topic()
    bridge = make_bridge([Rule("#", topic)])
    port = bridge.ports[0]
    connect = encoding.encode_connect(Connect(client_id="h", version=V311))
    hostile = [
        b"\x10",
        b"\x10\xff\xff\xff\xff\xff",
        b"\xff" * 500,
        connect + b"\x30\xff\xff\xff\x7f",
        connect + b"\x32\x05\0\x02\xc3\x28\0",
        connect + b"\x32\x82\x80\x04\xff\xff" + b"t" * 10,
        connect + connect,
    ]
    sockets = []
    for data in hostile:
        made = socket.create_connection(("127.0.0.1", port), timeout=20)
        made.sendall(data)
        sockets.append(made)
    with StrictClient(port, "good") as client:
        client.publish("a" * 65_000, b"1")
        client.ack()
        client.publish("a", b"2")
        client.ack()
    assert len(values(kafka, topic, 2)) == 2
    for made in sockets:
        made.close()
    wait_until(lambda: bridge.connections == 0)


def test_while_kafka_is_away_nothing_is_acknowledged_and_pings_are_answered(tmp_path: Path):
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        running = Kafka(servers, kind="embedded")
        running.create_topic("m")
        settings = BridgeSettings(
            listen=["127.0.0.1:0"],
            rules=[Rule("#", "m")],
            limits=ListenerLimits(receive_maximum=50, max_waiting_bytes=20_000),
            max_in_flight=200,
            unready_after_s=0.3,
        )
        with Bridge(servers, settings) as bridge:
            port = bridge.ports[0]
            old, new = StrictClient(port, "old", version=V311), StrictClient(port, "new")
            new.publish("a", b"before")
            new.ack()
            assert bridge.health().is_ready
            cluster.kill(1)
            for number in range(30):
                old.publish("o", b"%d" % number)
                new.publish("n", b"%d" % number)
            for number in range(100):
                new.publish("q", b"%d" % number, qos=0)
            old.ping()
            new.ping()
            wait_until(lambda: not bridge.health().is_ready)
            assert "Kafka has not acknowledged" in bridge.health().problems[0]
            assert bridge.health().is_alive
            cluster.start_broker(1)
            for _ in range(30):
                old.ack()
                new.ack()
            wait_until(lambda: bridge.health().is_ready)
            found = {record.value for record in running.consume_all("m") if record.key in (b"o", b"n")}
            assert len(found) == 30
            old.close()
            new.close()


def test_when_the_buffer_is_full_qos_0_is_dropped_and_counted_and_sockets_are_not_read():
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        Kafka(servers, kind="embedded").create_topic("m")
        settings = BridgeSettings(
            listen=["127.0.0.1:0"],
            rules=[Rule("#", "m")],
            limits=ListenerLimits(receive_maximum=1_000, max_waiting_bytes=10_000),
            max_in_flight=100,
        )
        with Bridge(servers, settings) as bridge:
            clients = [StrictClient(bridge.ports[0], f"c{number}", version=V311) for number in range(4)]
            cluster.kill(1)
            for client in clients:
                for _ in range(100):
                    client.publish("a", b"x" * 50, qos=1)
            wait_until(lambda: bridge.counts["mqtt-listen"].received == 100)
            other = StrictClient(bridge.ports[0], "other")
            for _ in range(10):
                other.publish("a", b"zero", qos=0)
            wait_until(lambda: bridge.counts["mqtt-listen"].dropped == 10)
            assert bridge.counts["mqtt-listen"].received == 110
            other.ping()
            cluster.start_broker(1)
            for client in clients:
                for _ in range(100):
                    client.ack()
                client.close()
            other.close()


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
