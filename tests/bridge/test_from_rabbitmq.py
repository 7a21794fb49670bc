"""Messages of a real RabbitMQ into Kafka."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from foreign_brokers import RabbitMq

from broker_embedded.cluster import EmbeddedCluster
from ottla import Json
from ottla.bridge import AmqpSource, Bridge, BridgeSettings, Rule, source_url
from ottla.testing import Kafka, wait_until

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


def settings(rabbit: RabbitMq, queue: str, rules: list[Rule] | None = None) -> BridgeSettings:
    url = source_url(f"amqp://127.0.0.1:{rabbit.port}", kind="amqp")
    return BridgeSettings(
        queues=[AmqpSource(url=url, queue=queue, prefetch=100)],
        rules=rules or [Rule("#", "orders")],
        dead_letter_topic="dead",
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
