"""The listener with hostile clients, and while Kafka is away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from bridge_kit import values
from mqtt_client import StrictClient

from broker_embedded.cluster import EmbeddedCluster
from ottla.bridge import Bridge, BridgeSettings, ListenerLimits, Rule
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V311, PacketType, Reason
from ottla.bridge.mqtt.packets import Connect, Disconnect
from ottla.testing import Kafka, wait_until


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
