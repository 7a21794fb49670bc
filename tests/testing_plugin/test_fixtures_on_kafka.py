"""The fixtures, on whatever --kafka is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from ottla.app import App
from ottla.clock import ManualClock
from ottla.errors import ConfigError, DeliveryError, UnknownTopic
from ottla.records import Malformed, TimestampType
from ottla.serdes import Avro, Json, Str
from ottla.testing import EmbeddedRegistry, Kafka, wait_until


@dataclasses.dataclass
class Order:
    id: int


def test_what_is_produced_is_consumed_with_keys_headers_and_time(kafka: Kafka, kafka_topic: str) -> None:
    sent = kafka.produce(
        kafka_topic,
        [Order(1), Order(2)],
        value=Avro(Order),
        keys=lambda order: str(order.id),
        headers=[("trace", b"\xff"), ("trace", None)],
        timestamp_ms=1_600_000_000_000,
    )
    assert sent == 2
    records = kafka.consume_all(kafka_topic, value=Avro(Order), key=Str())
    assert [(r.offset, r.key, r.value) for r in records] == [(0, "1", Order(1)), (1, "2", Order(2))]
    assert records[0].headers == [("trace", b"\xff"), ("trace", None)]
    assert (records[0].timestamp_ms, records[0].timestamp_type) == (1_600_000_000_000, TimestampType.CREATE_TIME)


def test_values_without_a_serde_are_sent_as_they_are_or_as_json(kafka: Kafka, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, [b"raw", "text", 1, {"a": [1]}, None], key=None)
    assert [r.value for r in kafka.consume_all(kafka_topic)] == [b"raw", b"text", b"\0" * 7 + b"\1", b'{"a":[1]}', None]


def test_records_come_back_by_partition_and_offset(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    kafka.produce(topic, range(300), keys=[str(number) for number in range(300)])
    records = kafka.consume_all(topic, value=int)
    assert [(r.partition, r.offset) for r in records] == sorted((r.partition, r.offset) for r in records)
    assert {r.partition for r in records} == {0, 1, 2}
    assert sorted(r.value for r in records) == list(range(300))


def test_an_empty_topic_is_empty_at_once(kafka: Kafka, kafka_topic: str) -> None:
    assert kafka.consume_all(kafka_topic, timeout_s=5) == []


def test_bytes_that_cannot_be_decoded_are_evidence_here_too(kafka: Kafka, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, [b"{"])
    (record,) = kafka.consume_all(kafka_topic, value=Json(Order))
    assert isinstance(record.value, Malformed)
    assert record.raw_value == b"{"


def test_two_topics_of_a_test_are_different_and_have_the_settings_asked_for(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    first = make_topic("a", config={"max.message.bytes": 1_000})
    second = make_topic("a")
    assert first != second
    assert kafka.produce(second, [b"x" * 2_000]) == 1
    with pytest.raises(DeliveryError, match="not delivered"):
        kafka.produce(first, [b"x" * 2_000])


def test_a_topic_that_exists_is_not_created_again(kafka: Kafka, kafka_topic: str) -> None:
    with pytest.raises(ConfigError, match="exists"):
        kafka.create_topic(kafka_topic)


def test_a_topic_that_does_not_exist_is_unknown_at_once_or_awaited(kafka: Kafka) -> None:
    missing = kafka.fresh_name("missing")
    with pytest.raises(UnknownTopic, match=missing):
        kafka.consume_all(missing)
    with pytest.raises(UnknownTopic, match=missing):
        kafka.consume_all(missing, at_least=1, timeout_s=0.3)


def test_a_consumer_takes_records_as_they_come_and_says_what_is_missing(
    kafka: Kafka, kafka_topic: str, kafka_consumer: Any
) -> None:
    kafka.produce(kafka_topic, ["a", "b"])
    assert [r.raw_value for r in kafka_consumer.take(1)] == [b"a"]
    kafka.produce(kafka_topic, ["c"])
    assert [r.raw_value for r in kafka_consumer.take(2)] == [b"b", b"c"]
    kafka.produce(kafka_topic, ["d"])
    with pytest.raises(TimeoutError, match=r"wanted 2 records, 1 arrived in 0.3 s: .*@3 b'd'"):
        kafka_consumer.take(2, timeout_s=0.3)


def test_a_consumer_may_begin_at_the_end(kafka: Kafka, kafka_topic: str, make_consumer: Callable[..., Any]) -> None:
    kafka.produce(kafka_topic, ["before"])
    consumer = make_consumer(kafka_topic, value=str, from_latest=True)
    assert consumer.read_to_end() == []
    kafka.produce(kafka_topic, ["after"])
    assert [r.value for r in consumer.take(1)] == ["after"]


def test_a_producer_delivers_by_the_end_of_its_block(kafka: Kafka, kafka_topic: str, kafka_producer: Any) -> None:
    kafka_producer.send(kafka_topic, b"value", key=b"key")
    kafka_producer.flush(10)
    assert [(r.key, r.value) for r in kafka.consume_all(kafka_topic)] == [(b"key", b"value")]


def test_an_app_runs_beside_the_test_and_is_stopped(
    kafka: Kafka, kafka_topic: str, kafka_group: str, run_app: Callable[[App], Any]
) -> None:
    app = App(kafka_group)
    seen: list[str] = []

    @app.handler(kafka_topic, value=Str())
    def on_text(text: str) -> None:
        seen.append(text)

    running = run_app(app)
    kafka.produce(kafka_topic, ["a", "b"])
    wait_until(lambda: len(seen) == 2, what="two records")
    running.stop()
    running.stop()
    assert seen == ["a", "b"]
    assert not running.is_running
    assert app.bootstrap_servers is None


def test_an_app_that_cannot_run_fails_its_test(kafka: Kafka) -> None:
    from ottla.testing import RunningApp

    running = RunningApp(App("nothing-to-do"), kafka.bootstrap_servers)
    wait_until(lambda: not running.is_running)
    with pytest.raises(ConfigError, match="no handlers"):
        running.stop()


def test_a_registry_keeps_its_schemas_in_a_compacted_topic_and_finds_them_again(
    make_cluster: Callable[..., Any],
) -> None:
    from ottla.serdes import SchemaRegistry, SerdeContext
    from ottla.testing.registry.log import TOPIC

    cluster = make_cluster(brokers=1)
    ctx = SerdeContext("orders")
    with EmbeddedRegistry(cluster.bootstrap_servers) as first:
        data = Avro(Order, registry=first.url).serialize(Order(1), ctx)
        SchemaRegistry(first.url).set_compatibility("FULL", "orders-value")
    with EmbeddedRegistry(cluster.bootstrap_servers) as second:
        assert Avro(Order, registry=second.url).deserialize(data, ctx) == Order(1)
        assert Avro(Order, registry=second.url).serialize(Order(1), ctx) == data
        assert second.answer("GET", "/config/orders-value", {}) == {"compatibilityLevel": "FULL"}
    records = Kafka(cluster.bootstrap_servers, kind="embedded").consume_all(TOPIC, key=Json(), value=Json())
    assert [record.key["keytype"] for record in records] == ["SCHEMA", "CONFIG"]
    assert records[0].value["schema"].startswith('{"type": "record"')


def test_a_registry_that_cannot_write_its_topic_answers_with_an_outage_and_keeps_its_state(
    make_cluster: Callable[..., Any],
) -> None:
    from ottla.errors import RegistryUnavailable
    from ottla.serdes import SchemaRegistry, SerdeContext

    class BrokenLog:
        def replay(self) -> Any:
            return ()

        def append(self, records: Any) -> None:
            raise DeliveryError([], total=1)

    server = EmbeddedRegistry()
    server._log = BrokenLog()
    with server:
        registry = SchemaRegistry(server.url, attempts=1)
        with pytest.raises(RegistryUnavailable, match="HTTP 500"):
            Avro(Order, registry=registry).serialize(Order(1), SerdeContext("orders"))
        assert registry.subjects() == []


def test_the_other_fixtures_are_what_they_say(
    manual_clock: ManualClock, schema_registry: EmbeddedRegistry, kafka_cluster: Any
) -> None:
    assert manual_clock.now_ms() == ManualClock().now_ms()
    assert schema_registry.url.startswith("http://127.0.0.1:")
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 3
