"""The threaded producer on a real broker. `test_asyncio_producer.py` has the same sentences for the other shell."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Json, Producer, Str
from ottla.errors import (
    BrokerUnavailable,
    BufferFull,
    ConfigError,
    DeliveryError,
    DeliveryPending,
    InputError,
    LifecycleError,
    RecordTooLarge,
    SerializationError,
    UnknownTopic,
)
from ottla.producer import NullKeysInOnePartition

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster
    from ottla.testing.kafka import Kafka

SOON = {"topic.metadata.propagation.max.ms": 300}


def wait_for_limit(producer: Producer, topic: str) -> None:
    """Until the cluster has said what the topic's limit is."""
    producer.send(topic, b"first").result(10)
    deadline = time.monotonic() + 10
    while producer._sizes.limits.topic_limit(topic) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def send_until_refused(producer: Producer, topic: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        producer.send(topic, b"small")
        time.sleep(0.005)


def test_a_record_arrives_as_it_was_sent(kafka: Kafka, kafka_topic: str) -> None:
    headers = [("trace", b"\xff\x00"), ("null", None), ("trace", b"again")]
    with Producer(kafka.bootstrap_servers) as producer:
        delivery = producer.send(
            kafka_topic, b"value", key=b"key", headers=headers, partition=0, timestamp_ms=1_700_000_000_123
        )
        report = delivery.result(10)
    assert (report.topic, report.partition, report.offset) == (kafka_topic, 0, 0)
    [record] = kafka.consume_all(kafka_topic)
    assert (record.raw_value, record.raw_key, record.headers) == (b"value", b"key", headers)
    assert record.timestamp_ms == report.timestamp_ms == 1_700_000_000_123


def test_serdes_encode_keys_and_values(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, key=Str(), value=Json()) as producer:
        producer.send(kafka_topic, {"n": 1}, key="naïve")
        producer.send(kafka_topic, None, key="gone")
    first, second = kafka.consume_all(kafka_topic)
    assert (first.raw_key, first.raw_value) == ("naïve".encode(), b'{"n":1}')
    assert (second.raw_key, second.raw_value) == (b"gone", None)


def test_what_is_not_bytes_needs_a_serde(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(SerializationError, match=r"value: expected bytes, got dict; give the producer a serde"):
            producer.send(kafka_topic, {"n": 1})
        with pytest.raises(SerializationError, match=r"key: expected bytes, got str"):
            producer.send(kafka_topic, b"", key="k")
        with pytest.raises(SerializationError, match=r"header h: expected bytes or None, got str"):
            producer.send(kafka_topic, b"", headers=[("h", "text")])  # type: ignore[list-item]
        producer.send(kafka_topic, bytearray(b"fine"), key=memoryview(b"k"), headers=(("h", b"1"),)).result(10)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_arrives(kafka: Kafka, kafka_topic: str, compression: str) -> None:
    with Producer(kafka.bootstrap_servers, settings={"compression.type": compression}) as producer:
        for number in range(50):
            producer.send(kafka_topic, b"%d" % number * 50)
    assert [record.raw_value for record in kafka.consume_all(kafka_topic)] == [b"%d" % n * 50 for n in range(50)]


def test_a_delivery_tells_its_callback_in_the_producers_own_thread(kafka: Kafka, kafka_topic: str) -> None:
    seen: list[tuple[str, Any]] = []
    with Producer(kafka.bootstrap_servers) as producer:
        delivery = producer.send(
            kafka_topic, b"v", on_delivery=lambda d: seen.append((threading.current_thread().name, d))
        )
        delivery.result(10)
        producer.flush()
        delivery.add_done_callback(lambda d: seen.append(("late", d)))
    assert [who for who, _ in seen] == [seen[0][0], "late"]
    assert "reports" in seen[0][0]
    assert all(told is delivery for _, told in seen)


def test_a_failing_callback_ends_nothing(kafka: Kafka, kafka_topic: str) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the caller's mistake")

    with Producer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"1", on_delivery=fail).result(10)
        producer.send(kafka_topic, b"2", on_delivery=fail).result(10)


def test_a_record_over_the_topics_limit_is_refused_at_once(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(config={"max.message.bytes": 200_000})
    with Producer(kafka.bootstrap_servers) as producer:
        wait_for_limit(producer, topic)
        with pytest.raises(RecordTooLarge) as caught:
            producer.send(topic, bytes(200_000), headers=[("h", b"1")])
    assert caught.value.limit_bytes == 200_000
    assert caught.value.setting == f"max.message.bytes of topic {topic}"
    assert caught.value.size_bytes == 200_076


def test_a_record_over_the_clients_limit_is_refused_at_once(kafka: Kafka, kafka_topic: str) -> None:
    with (
        Producer(kafka.bootstrap_servers, settings={"max.request.size": 500_000}) as producer,
        pytest.raises(RecordTooLarge, match=r"set by max.request.size \(this client's setting\)"),
    ):
        producer.send(kafka_topic, bytes(500_000))


def test_the_largest_record_that_fits_is_sent(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(config={"max.message.bytes": 200_000})
    with Producer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as producer:
        wait_for_limit(producer, topic)
        producer.send(topic, bytes(200_000 - 72)).result(10)
        with pytest.raises(RecordTooLarge):
            producer.send(topic, bytes(200_000 - 71))


def test_a_limit_that_was_not_known_yet_fails_the_delivery_with_the_same_error(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": 150_000})
    with Producer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as producer:
        with pytest.raises(RecordTooLarge, match="150,000"):
            producer.send(topic, bytes(300_000)).result(10)
        wait_for_limit(producer, topic)
        with pytest.raises(RecordTooLarge, match="150,000"):
            producer.send(topic, bytes(300_000))


def test_a_raised_limit_is_noticed(
    kafka: Kafka, make_topic: Callable[..., str], alter_topic: Callable[[str, str, str], None]
) -> None:
    topic = make_topic(config={"max.message.bytes": 150_000})
    with Producer(kafka.bootstrap_servers, settings={"metadata.max.age.ms": 200}) as producer:
        wait_for_limit(producer, topic)
        with pytest.raises(RecordTooLarge):
            producer.send(topic, bytes(160_000))
        alter_topic(topic, "max.message.bytes", "400000")
        deadline = time.monotonic() + 10
        while True:
            try:
                producer.send(topic, bytes(160_000)).result(10)
                break
            except RecordTooLarge:
                assert time.monotonic() < deadline
                time.sleep(0.02)


def test_a_limit_that_was_lowered_meanwhile_is_the_one_that_the_error_names(
    kafka: Kafka, make_topic: Callable[..., str], alter_topic: Callable[[str, str, str], None]
) -> None:
    topic = make_topic(config={"max.message.bytes": 400_000})
    with Producer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as producer:
        producer.send(topic, b"before").result()
        alter_topic(topic, "max.message.bytes", "200000")
        with pytest.raises(RecordTooLarge, match=r"the limit is 200,000 bytes, set by max\.message\.bytes of topic"):
            producer.send(topic, bytes(300_000)).result()
        producer.send(topic, b"after").result()
    assert [record.raw_value for record in kafka.consume_all(topic)] == [b"before", b"after"]


def test_a_batch_size_above_a_declared_topics_limit_is_refused_at_start(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": 100_000})
    producer = Producer(kafka.bootstrap_servers, topics=[topic])
    with pytest.raises(ConfigError, match=rf"batch.size: found 131072 .*wanted at most 100,000 for topic {topic}"):
        producer.start()
    producer.close()


def test_a_batch_size_above_an_undeclared_topics_limit_is_refused_once_it_is_known(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": 100_000})
    with Producer(kafka.bootstrap_servers) as producer:
        wait_for_limit(producer, topic)
        with pytest.raises(ConfigError, match=rf"batch.size: found 131072 .* for topic {topic}"):
            send_until_refused(producer, topic)


def test_send_does_not_wait_for_metadata(closed_port: str) -> None:
    producer = Producer(closed_port)
    started = time.monotonic()
    deliveries = [producer.send("t", b"v") for _ in range(1_000)]
    assert time.monotonic() - started < 1.0
    assert not any(delivery.done() for delivery in deliveries)
    with pytest.raises(DeliveryError) as caught:
        producer.close(0)
    assert caught.value.total == 1_000


def test_a_full_buffer_is_back_pressure_and_then_buffer_full(closed_port: str) -> None:
    producer = Producer(closed_port, settings={"queue.buffering.max.messages": 10, "max.block.ms": 200})
    for _ in range(10):
        producer.send("t", b"v")
    started = time.monotonic()
    with pytest.raises(BufferFull, match=r"t: the send buffer stayed full for max.block.ms=200: 10 records wait for"):
        producer.send("t", b"v")
    assert 0.15 < time.monotonic() - started < 5
    with pytest.raises(DeliveryError):
        producer.close(0)


def test_back_pressure_ends_when_there_is_room(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, settings={"queue.buffering.max.messages": 100}) as producer:
        for number in range(5_000):
            producer.send(kafka_topic, b"%d" % number)
    assert len(kafka.consume_all(kafka_topic)) == 5_000


def test_an_unreachable_broker_is_named_within_a_bounded_time(closed_port: str) -> None:
    started = time.monotonic()
    with (
        pytest.raises(BrokerUnavailable, match=rf"no Kafka broker answered at {closed_port} .*Connection refused"),
        Producer(closed_port, start_timeout_s=0),
    ):
        pass
    assert time.monotonic() - started < 5


def test_a_wrong_port_is_named_within_a_bounded_time(silent_port: str) -> None:
    producer = Producer(silent_port)
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=rf"at {silent_port} .*Check that the address and port are a Kafka"):
        producer.start(timeout_s=1)
    assert time.monotonic() - started < 5
    producer.close(0)


def test_flush_says_that_no_broker_answers(closed_port: str) -> None:
    producer = Producer(closed_port)
    producer.send("t", b"v", key=b"k")
    with pytest.raises(
        DeliveryError, match=rf"t\[\?\] key=b'k': not acknowledged yet: no Kafka broker .*{closed_port}"
    ):
        producer.flush(0.5)
    with pytest.raises(DeliveryError, match="the producer was closed before a broker acknowledged the record"):
        producer.close(0)


def test_an_unknown_topic_fails_the_delivery_and_the_next_flush(no_auto_create: EmbeddedCluster) -> None:
    producer = Producer(no_auto_create.bootstrap_servers, settings=SOON)
    with pytest.raises(UnknownTopic, match=r"nowhere: the cluster at .* does not have this topic .* fix the name"):
        producer.send("nowhere", b"1").result(10)
    producer.flush()  # that failure was raised to its caller
    producer.send("nowhere", b"2", key=b"k")
    with pytest.raises(DeliveryError, match="nowhere") as caught:
        producer.flush(10)
    assert isinstance(caught.value.__cause__, UnknownTopic)
    [undelivered] = caught.value.undelivered
    assert (undelivered.topic, undelivered.key) == ("nowhere", b"k")
    producer.close()


def test_a_topic_created_after_its_failure_is_found(no_auto_create: EmbeddedCluster) -> None:
    with Producer(no_auto_create.bootstrap_servers, settings=SOON) as producer:
        with pytest.raises(UnknownTopic):
            producer.send("later", b"1").result(10)
        no_auto_create.create_topic("later", partitions=1)
        deadline = time.monotonic() + 10
        while True:
            try:
                producer.send("later", b"2").result(10)
                break
            except UnknownTopic:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_a_partition_that_does_not_exist_fails_the_delivery(kafka: Kafka, kafka_topic: str) -> None:
    with (
        Producer(kafka.bootstrap_servers) as producer,
        pytest.raises(InputError, match="found partition 17, wanted one that the topic has"),
    ):
        producer.send(kafka_topic, b"v", partition=17).result(10)


def test_a_callback_does_not_make_a_failure_silent(no_auto_create: EmbeddedCluster) -> None:
    seen: list[object] = []
    producer = Producer(no_auto_create.bootstrap_servers, settings=SOON)
    producer.send("nowhere", b"1", on_delivery=lambda delivery: seen.append(delivery.done()))
    with pytest.raises(DeliveryError):
        producer.flush(10)
    producer.close()
    assert seen == [True]


def test_close_raises_what_was_not_delivered(no_auto_create: EmbeddedCluster) -> None:
    with (
        pytest.raises(DeliveryError, match="1 record"),
        Producer(no_auto_create.bootstrap_servers, settings=SOON) as producer,
    ):
        producer.send("nowhere", b"1")


def test_an_error_in_the_block_is_not_hidden_by_an_undelivered_record(no_auto_create: EmbeddedCluster) -> None:
    def fail() -> None:
        with Producer(no_auto_create.bootstrap_servers, settings=SOON) as producer:
            producer.send("nowhere", b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert "nowhere" in "".join(caught.value.__notes__)


def test_a_closed_producer_refuses_and_closing_again_does_nothing(kafka: Kafka, kafka_topic: str) -> None:
    producer = Producer(kafka.bootstrap_servers)
    producer.close()
    producer.close()
    for attempt in (lambda: producer.send(kafka_topic, b""), producer.flush, producer.start):
        with pytest.raises(LifecycleError, match="this producer is closed"):
            attempt()


def test_waiting_for_a_delivery_can_time_out_and_be_repeated(closed_port: str) -> None:
    producer = Producer(closed_port)
    delivery = producer.send("t", b"v")
    for _ in range(2):
        with pytest.raises(DeliveryPending, match=r"t: not acknowledged after 0\.05 s; it is still being tried"):
            delivery.result(0.05)
    with pytest.raises(DeliveryError):
        producer.close(0)


def test_many_records_share_one_delivery(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        bulk = producer.send_many(kafka_topic, ((b"%d" % n, b"k", [("n", b"%d" % n)]) for n in range(3_000)))
        assert bulk.result(20) == 3_000
        assert (
            producer.send_many(kafka_topic, [(b"a",), (b"b", b"k"), (b"c", None, (), 0, 1_700_000_000_000)]).result(10)
            == 3
        )
        assert producer.send_many(kafka_topic, []).result(1) == 0
    records = kafka.consume_all(kafka_topic)
    assert [record.raw_value for record in records[:3_000]] == [b"%d" % n for n in range(3_000)]
    assert records[2_999].headers == [("n", b"2999")]
    assert records[-1].timestamp_ms == 1_700_000_000_000


def test_a_bulk_lists_what_was_not_delivered(no_auto_create: EmbeddedCluster) -> None:
    producer = Producer(no_auto_create.bootstrap_servers, settings=SOON)
    with pytest.raises(DeliveryError) as caught:
        producer.send_many("nowhere", [(b"1", b"a"), (b"2", b"b")]).result(10)
    assert [record.key for record in caught.value.undelivered] == [b"a", b"b"]
    producer.send_many("nowhere", [(b"1", b"c")])
    with pytest.raises(DeliveryError, match="key=b'c'"):
        producer.close()


def test_a_record_that_cannot_be_sent_stops_a_bulk_and_says_how_far_it_came(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(SerializationError) as caught:
            producer.send_many(kafka_topic, [(b"1",), (b"2",), ("three",)])
        assert "2 records before this one are on their way" in "".join(caught.value.__notes__)
    assert len(kafka.consume_all(kafka_topic)) == 2


@pytest.mark.parametrize("partitioner", ["murmur2", "murmur2_random", "consistent_random", "fnv1a_random"])
def test_null_keys_do_not_pile_up_in_one_partition(
    kafka: Kafka, make_topic: Callable[..., str], partitioner: str
) -> None:
    topic = make_topic(partitions=4)
    with Producer(kafka.bootstrap_servers, partitioner=partitioner, profile="low_latency") as producer:
        partitions = set()
        for _ in range(60):
            for delivery in [producer.send(topic, b"v") for _ in range(10)]:
                partitions.add(delivery.result(10).partition)
            if len(partitions) > 1:
                break
    assert len(partitions) > 1


@pytest.mark.parametrize("partitioner", ["consistent", "fnv1a"])
def test_null_keys_in_one_partition_are_warned_of(
    kafka: Kafka, make_topic: Callable[..., str], partitioner: str
) -> None:
    topic = make_topic(partitions=4)
    with Producer(kafka.bootstrap_servers, partitioner=partitioner) as producer:
        with pytest.warns(NullKeysInOnePartition):
            first = producer.send(topic, b"v")
        deliveries = [first, *(producer.send(topic, b"v") for _ in range(50))]
        assert len({delivery.result(10).partition for delivery in deliveries}) == 1


def test_keys_go_where_the_java_client_puts_them(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    from ottla.key_hashes import positive_murmur2

    topic = make_topic(partitions=5)
    with Producer(kafka.bootstrap_servers) as producer:
        deliveries = {b"key-%d" % n: producer.send(topic, b"v", key=b"key-%d" % n) for n in range(200)}
        placed = {key: delivery.result(10).partition for key, delivery in deliveries.items()}
    assert placed == {key: positive_murmur2(key) % 5 for key in deliveries}


def test_round_robin_takes_turns(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)
    with Producer(kafka.bootstrap_servers, partitioner="round_robin") as producer:
        deliveries = [producer.send(topic, b"v", key=b"same") for _ in range(40)]
        assert Counter(delivery.result(10).partition for delivery in deliveries) == dict.fromkeys(range(4), 10)


def test_a_function_chooses_the_partition(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)

    def by_first_byte(key: bytes | None, partitions: object, available: object) -> int:
        return key[0] if key else 0

    with Producer(kafka.bootstrap_servers, partitioner=by_first_byte) as producer:
        assert producer.send(topic, b"v", key=b"\x03").result(10).partition == 3
        assert producer.send(topic, b"v", key=b"\x03", partition=1).result(10).partition == 1
        with pytest.raises(InputError, match="partitioner by_first_byte chose 9, wanted one of 0 to 3"):
            producer.send(topic, b"v", key=b"\x09").result(10)


def test_order_is_kept_while_the_partitions_are_not_known_yet(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, partitioner="sticky") as producer:
        for number in range(500):
            producer.send(kafka_topic, b"%d" % number)
    assert [record.raw_value for record in kafka.consume_all(kafka_topic)] == [b"%d" % n for n in range(500)]


def test_an_explicit_producer_wants_a_partition_with_each_send(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, partitioner="explicit") as producer:
        producer.send(kafka_topic, b"v", partition=0).result(10)
        with pytest.raises(ConfigError, match=r"found no partition, wanted send\(..., partition=n\)"):
            producer.send(kafka_topic, b"v")


def test_several_threads_share_a_producer(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    with Producer(kafka.bootstrap_servers) as producer:

        def work(worker: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d" % number, key=b"%d" % worker)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_key: dict[bytes | None, list[int]] = {}
    for record in kafka.consume_all(topic):
        by_key.setdefault(record.raw_key, []).append(int(record.raw_value or b""))
    assert by_key == {b"%d" % worker: list(range(500)) for worker in range(4)}


def test_a_producer_carried_over_a_fork_is_refused(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"parent").result(10)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                producer.send(kafka_topic, b"child")
                os.write(writer, b"sent")
            except LifecycleError as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            assert b"copied by a fork" in answer.read()
        os.waitpid(child, 0)
        producer.send(kafka_topic, b"parent goes on").result(10)
    assert len(kafka.consume_all(kafka_topic)) == 2


def test_a_setting_that_the_client_refuses_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"librdkafka refuses the settings: .*debug"):
        Producer("127.0.0.1:1", settings={"debug": "no-such-context"})


def test_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers: found nothing, wanted host:port"):
        Producer(environ={})


def test_no_thread_stays_behind(kafka: Kafka, kafka_topic: str) -> None:
    before = set(threading.enumerate())
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"v")
    assert {thread for thread in threading.enumerate() if thread.name.startswith("ottla-producer")} <= before


def test_a_callback_may_wait_for_another_delivery(kafka: Kafka, kafka_topic: str) -> None:
    seen: list[int | None] = []
    with Producer(kafka.bootstrap_servers) as producer:

        def send_another(_: object) -> None:
            seen.append(producer.send(kafka_topic, b"second").result(10).offset)

        producer.send(kafka_topic, b"first", on_delivery=send_another).result(10)
        deadline = time.monotonic() + 10
        while not seen:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert seen == [1]


def test_a_process_that_ends_without_closing_still_delivers(kafka: Kafka, kafka_topic: str) -> None:
    program = (
        "import sys\nfrom ottla import Producer\n"
        "producer = Producer(sys.argv[1])\n"
        "for number in range(100): producer.send(sys.argv[2], b'%d' % number)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, kafka.bootstrap_servers, kafka_topic],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "producer_not_closed" in ended.stdout + ended.stderr
    assert len(kafka.consume_all(kafka_topic)) == 100
