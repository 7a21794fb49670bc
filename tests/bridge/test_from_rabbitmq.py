"""Messages of a real RabbitMQ into Kafka."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bridge_kit import KeptLog
from foreign_brokers import RabbitMq

from broker_embedded.cluster import EmbeddedCluster
from ottla import Avro, Json
from ottla.bridge import AmqpSource, Bridge, BridgeSettings, Rule, source_url
from ottla.serdes import SerdeContext
from ottla.testing import Kafka, wait_until
from ottla.testing.registry import EmbeddedRegistry

pytestmark = pytest.mark.complete
pytest.importorskip("pika", reason="pika is not installed: pip install 'ottla[amqp]'")


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    server = RabbitMq(tmp_path_factory.mktemp("rabbitmq"))
    yield server
    server.close()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        kafka = Kafka(running.bootstrap_servers, kind="embedded", cluster=running)
        kafka.create_topic("orders", partitions=3)
        kafka.create_topic("dead")
        yield running


def settings(rabbit: RabbitMq, queue: str, rules: list[Rule] | None = None, **more: Any) -> BridgeSettings:
    url = source_url(f"amqp://127.0.0.1:{more.pop('port', rabbit.port)}", kind="amqp")
    return BridgeSettings(
        queues=[AmqpSource(url=url, queue=queue, prefetch=100)],
        rules=rules or [Rule("#", "orders")],
        dead_letter_topic="dead",
        **more,
    )


def publish(rabbit: RabbitMq, queue: str, messages: list[bytes]) -> None:
    import pika

    channel = rabbit.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for number, body in enumerate(messages):
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"m{number}", headers={"n": number})
        channel.basic_publish("", queue, body, properties)
    channel.connection.close()


def left_in(rabbit: RabbitMq, queue: str) -> int:
    channel = rabbit.channel()
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    channel.connection.close()
    return count


def test_messages_are_acknowledged_once_kafka_has_them(rabbit: RabbitMq, cluster: EmbeddedCluster):
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    publish(rabbit, "first", [b"%d" % number for number in range(500)])
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "first")) as bridge:
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 500, timeout_s=60)
        assert bridge.health().is_ready
        (road,) = bridge._roads._queues
        assert road._connection.bytes_received > 500 * 50, "pika counts them; else it closes for missed heartbeats"
    found = kafka.consume_all("orders")
    assert sorted(int(record.value) for record in found) == list(range(500))
    assert dict(found[0].headers)["amqp-routing-key"] == b"first"
    assert left_in(rabbit, "first") == 0


def test_what_does_not_decode_is_a_dead_letter_and_acknowledged(rabbit: RabbitMq, cluster: EmbeddedCluster):
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    publish(rabbit, "second", [b"1", b"x", b"2"])
    rules = [Rule("#", "orders", value=Json(int))]
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "second", rules)) as bridge:
        wait_until(lambda: bridge.counts["amqp"].acknowledged + bridge.counts["amqp"].dead_lettered >= 3, timeout_s=60)
    assert [record.value for record in kafka.consume_all("dead")] == [b"x"]
    assert left_in(rabbit, "second") == 0


def test_no_message_stops_those_behind_it(rabbit: RabbitMq, cluster: EmbeddedCluster):
    """Each of the first four ends a connection of pika that decodes it, or is no text where text is expected."""
    import pika

    class Encoded(pika.BasicProperties):
        def __init__(self, *parts: bytes) -> None:
            super().__init__()
            self._parts = list(parts)

        def encode(self) -> list[bytes]:
            return self._parts

    headers = pika.BasicProperties.FLAG_HEADERS.to_bytes(2, "big")
    sent = [
        (Encoded(headers, b"\0\0\0\x0b\1nT", b"\xff" * 8), b"key"),
        (Encoded(headers, b"\0\0\0\4\2\xff\xfeV"), b"key"),
        (Encoded(b"\x80\0", b"\2\xff\xfe"), b"key"),
        (pika.BasicProperties(), b"\xff\xfe"),
        (Encoded(headers, b"\0\0\0\x0b\1nd", struct.pack(">d", 2.5)), b"key"),
    ]
    channel = rabbit.channel()
    channel.exchange_declare("all", "fanout")
    channel.queue_declare("odd", durable=True)
    channel.queue_bind("odd", "all")
    channel.confirm_delivery()
    for number, (properties, routing_key) in enumerate(sent):
        channel.basic_publish("all", routing_key, b"%d" % number, properties)
    channel.basic_publish("all", "key", b"x" * 300_000)
    channel.connection.close()
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "odd")) as bridge:
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 6, timeout_s=60)
    found = {record.value: dict(record.headers) for record in kafka.consume_all("orders")}
    assert found.keys() == {b"0", b"1", b"2", b"3", b"4", b"x" * 300_000}
    assert found[b"3"]["amqp-routing-key"] == "\ufffd\ufffd".encode()
    assert found[b"4"]["n"] == b"2.5"
    assert left_in(rabbit, "odd") == 0


class Heartbeats:
    """Forwards one connection to RabbitMQ, and puts a heartbeat behind each frame that comes from there."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._there = socket.create_connection(("127.0.0.1", port))
        self._sockets = [self._listening, self._there]
        self._threads = [threading.Thread(target=self._run)]
        self._threads[0].start()

    def _run(self) -> None:
        here, _ = self._listening.accept()
        self._sockets.append(here)
        back = threading.Thread(target=self._copy, args=(here,))
        self._threads.append(back)
        back.start()
        frames = self._there.makefile("rb")
        with contextlib.suppress(OSError):
            while start := frames.read(7):
                here.sendall(start + frames.read(int.from_bytes(start[3:], "big") + 1) + b"\x08\0\0\0\0\0\0\xce")
        self.close()

    def _copy(self, here: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(65_536):
                self._there.sendall(data)
        self.close()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Heartbeats:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for each in self._threads:
            each.join(20)
        for each in self._sockets:
            each.close()


def test_deliveries_that_are_not_in_one_piece_arrive(rabbit: RabbitMq, cluster: EmbeddedCluster):
    publish(rabbit, "pieces", [b"%d" % number for number in range(20)])
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    with (
        Heartbeats(rabbit.port) as between,
        Bridge(cluster.bootstrap_servers, settings(rabbit, "pieces", port=between.port)) as bridge,
    ):
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 20, timeout_s=60)
    assert [int(record.value) for record in kafka.consume_all("orders")] == list(range(20))
    assert left_in(rabbit, "pieces") == 0


def test_a_queue_that_was_deleted_is_consumed_once_it_is_there_again(rabbit: RabbitMq, cluster: EmbeddedCluster):
    publish(rabbit, "deleted", [b"1"])
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "deleted")) as bridge:
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 1, timeout_s=60)
        channel = rabbit.channel()
        channel.queue_delete("deleted")
        channel.connection.close()
        wait_until(lambda: any("queue deleted" in each for each in bridge.health().problems), timeout_s=60)
        publish(rabbit, "deleted", [b"2"])
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 2, timeout_s=60)
        assert bridge.health().is_ready


def test_messages_wait_for_a_schema_registry(
    rabbit: RabbitMq, cluster: EmbeddedCluster, schema_registry: EmbeddedRegistry
):
    schema_registry._log = KeptLog()
    serde = Avro(schema='"long"', registry=schema_registry.url)
    messages = [serde.serialize(number, SerdeContext("orders")) or b"" for number in range(50)]
    publish(rabbit, "avro", [*messages, b"no schema id"])
    schema_registry.stop()
    rules = [Rule("#", "orders", value=Avro(schema='"long"', registry=schema_registry.url))]
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "avro", rules)) as bridge:
        wait_until(lambda: bridge.counts["amqp"].received >= 51, timeout_s=60)
        assert left_in(rabbit, "avro") == 0, "all are handed out"
        assert bridge.counts["amqp"].acknowledged == 0
        schema_registry.start()
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 50, timeout_s=60)
        wait_until(lambda: bridge.counts["amqp"].dead_lettered >= 1, timeout_s=60)
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    assert [record.value for record in kafka.consume_all("orders")] == messages
    assert left_in(rabbit, "avro") == 0


def test_messages_wait_for_room_while_kafka_is_away(rabbit: RabbitMq, cluster: EmbeddedCluster):
    publish(rabbit, "room", [b"%d" % number for number in range(300)])
    cluster.kill(1)
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "room", max_in_flight=10)) as bridge:
        wait_until(lambda: bridge.counts["amqp"].received >= 100, timeout_s=60)
        (measure,) = [measure for _, measure in bridge._roads.measures()]
        assert measure.in_flight == 10
        cluster.start_broker(1)
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 300, timeout_s=60)
        assert bridge.counts["amqp"].received == 300, "no message came twice"
    assert left_in(rabbit, "room") == 0


def test_nothing_is_lost_when_kafka_and_rabbitmq_die(rabbit: RabbitMq, cluster: EmbeddedCluster):
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    publish(rabbit, "third", [b"%d" % number for number in range(300)])
    cluster.kill(1)
    with Bridge(cluster.bootstrap_servers, settings(rabbit, "third")) as bridge:
        wait_until(lambda: bridge.counts["amqp"].received >= 100, timeout_s=60)
        assert bridge.counts["amqp"].received == 100  # the prefetch is the window
        rabbit.stop(signal.SIGKILL)
        wait_until(lambda: not bridge.health().is_ready, timeout_s=60)
        cluster.start_broker(1)
        # What Kafka takes now belongs to a channel that is gone: RabbitMQ delivers it again.
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 100, timeout_s=60)
        rabbit.start()
        wait_until(lambda: bridge.counts["amqp"].acknowledged >= 400, timeout_s=120)
    assert {int(record.value) for record in kafka.consume_all("orders")} == set(range(300))
    assert left_in(rabbit, "third") == 0
