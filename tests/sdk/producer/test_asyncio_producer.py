"""The asyncio producer on a real broker. `test_threads_producer.py` has the same sentences for the other shell."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ottla import AsyncProducer, Json, Str
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


async def wait_for_limit(producer: AsyncProducer, topic: str) -> None:
    """Until the cluster has said what the topic's limit is."""
    await producer.send(topic, b"first")
    deadline = time.monotonic() + 10
    while producer._sizes.limits.topic_limit(topic) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def test_a_record_arrives_as_it_was_sent(kafka: Kafka, kafka_topic: str) -> None:
    headers = [("trace", b"\xff\x00"), ("null", None), ("trace", b"again")]
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        delivery = producer.send(
            kafka_topic, b"value", key=b"key", headers=headers, partition=0, timestamp_ms=1_700_000_000_123
        )
        report = await delivery
    assert (report.topic, report.partition, report.offset) == (kafka_topic, 0, 0)
    [record] = await asyncio.to_thread(kafka.consume_all, kafka_topic)
    assert (record.raw_value, record.raw_key, record.headers) == (b"value", b"key", headers)
    assert record.timestamp_ms == report.timestamp_ms == 1_700_000_000_123


async def test_serdes_encode_keys_and_values(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, key=Str(), value=Json()) as producer:
        producer.send(kafka_topic, {"n": 1}, key="naïve")
        producer.send(kafka_topic, None, key="gone")
    first, second = await asyncio.to_thread(kafka.consume_all, kafka_topic)
    assert (first.raw_key, first.raw_value) == ("naïve".encode(), b'{"n":1}')
    assert (second.raw_key, second.raw_value) == (b"gone", None)


async def test_what_is_not_bytes_needs_a_serde(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(SerializationError, match=r"value: expected bytes, got dict; give the producer a serde"):
            producer.send(kafka_topic, {"n": 1})
        with pytest.raises(SerializationError, match=r"key: expected bytes, got str"):
            producer.send(kafka_topic, b"", key="k")
        with pytest.raises(SerializationError, match=r"header h: expected bytes or None, got str"):
            producer.send(kafka_topic, b"", headers=[("h", "text")])  # type: ignore[list-item]
        await producer.send(kafka_topic, bytearray(b"fine"), key=memoryview(b"k"), headers=(("h", b"1"),))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_arrives(kafka: Kafka, kafka_topic: str, compression: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, settings={"compression.type": compression}) as producer:
        for number in range(50):
            producer.send(kafka_topic, b"%d" % number * 50)
    assert [record.raw_value for record in await asyncio.to_thread(kafka.consume_all, kafka_topic)] == [
        b"%d" % n * 50 for n in range(50)
    ]


async def test_a_delivery_tells_its_callback_on_the_event_loop(kafka: Kafka, kafka_topic: str) -> None:
    seen: list[tuple[object, Any]] = []
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        delivery = producer.send(kafka_topic, b"v", on_delivery=lambda d: seen.append((asyncio.get_running_loop(), d)))
        await delivery
        delivery.add_done_callback(lambda d: seen.append(("late", d)))
    assert [who for who, _ in seen] == [asyncio.get_running_loop(), "late"]
    assert all(told is delivery for _, told in seen)


async def test_a_failing_callback_ends_nothing(kafka: Kafka, kafka_topic: str) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the caller's mistake")

    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        await producer.send(kafka_topic, b"1", on_delivery=fail)
        await producer.send(kafka_topic, b"2", on_delivery=fail)


async def test_a_record_over_the_topics_limit_is_refused_at_once(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(config={"max.message.bytes": 200_000})
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        await wait_for_limit(producer, topic)
        with pytest.raises(RecordTooLarge) as caught:
            producer.send(topic, bytes(200_000), headers=[("h", b"1")])
    assert caught.value.limit_bytes == 200_000
    assert caught.value.setting == f"max.message.bytes of topic {topic}"
    assert caught.value.size_bytes == 200_076


async def test_a_record_over_the_clients_limit_is_refused_at_once(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, settings={"max.request.size": 500_000}) as producer:
        with pytest.raises(RecordTooLarge, match=r"set by max.request.size \(this client's setting\)"):
            producer.send(kafka_topic, bytes(500_000))


async def test_the_largest_record_that_fits_is_sent(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(config={"max.message.bytes": 200_000})
    async with AsyncProducer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as producer:
        await wait_for_limit(producer, topic)
        await producer.send(topic, bytes(200_000 - 72))
        with pytest.raises(RecordTooLarge):
            producer.send(topic, bytes(200_000 - 71))


async def test_a_limit_that_was_not_known_yet_fails_the_delivery_with_the_same_error(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": 150_000})
    async with AsyncProducer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as producer:
        with pytest.raises(RecordTooLarge, match="150,000"):
            await producer.send(topic, bytes(300_000))
        await wait_for_limit(producer, topic)
        with pytest.raises(RecordTooLarge, match="150,000"):
            producer.send(topic, bytes(300_000))


async def test_a_raised_limit_is_noticed(
    kafka: Kafka, make_topic: Callable[..., str], alter_topic: Callable[[str, str, str], None]
) -> None:
    topic = make_topic(config={"max.message.bytes": 150_000})
    async with AsyncProducer(kafka.bootstrap_servers, settings={"metadata.max.age.ms": 200}) as producer:
        await wait_for_limit(producer, topic)
        with pytest.raises(RecordTooLarge):
            producer.send(topic, bytes(160_000))
        alter_topic(topic, "max.message.bytes", "400000")
        deadline = time.monotonic() + 10
        while True:
            try:
                await producer.send(topic, bytes(160_000))
                break
            except RecordTooLarge:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)


async def test_a_batch_size_above_a_declared_topics_limit_is_refused_at_start(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": 100_000})
    producer = AsyncProducer(kafka.bootstrap_servers, topics=[topic])
    with pytest.raises(ConfigError, match=rf"batch.size: found 131072 .*wanted at most 100,000 for topic {topic}"):
        await producer.start()
    await producer.close()


async def test_a_batch_size_above_an_undeclared_topics_limit_is_refused_once_it_is_known(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": 100_000})
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(ConfigError, match=rf"batch.size: found 131072 .* for topic {topic}"):
            await producer.send(topic, b"the first waits for the limit")
        with pytest.raises(ConfigError, match=rf"batch.size: found 131072 .* for topic {topic}"):
            producer.send(topic, b"the next is refused at once")


async def test_send_does_not_wait_for_metadata(make_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_cluster(brokers=1)
    producer = AsyncProducer(cluster.bootstrap_servers)
    await producer.start()
    cluster.stop()
    started = time.monotonic()
    deliveries = [producer.send("t", b"v") for _ in range(1_000)]
    assert time.monotonic() - started < 1.0
    assert not any(delivery.done() for delivery in deliveries)
    with pytest.raises(DeliveryError) as caught:
        await producer.close(0)
    assert caught.value.total == 1_000


async def test_a_full_buffer_is_back_pressure_and_then_buffer_full(
    make_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = make_cluster(brokers=1)
    producer = AsyncProducer(
        cluster.bootstrap_servers, settings={"queue.buffering.max.messages": 10, "max.block.ms": 200}
    )
    await producer.start()
    cluster.stop()
    for _ in range(10):
        producer.send("t", b"v")
    started = time.monotonic()
    with pytest.raises(BufferFull, match=r"t: the send buffer stayed full for max.block.ms=200: 10 records wait for"):
        await producer.send("t", b"v")
    assert 0.15 < time.monotonic() - started < 5
    with pytest.raises(BufferFull, match="t: the send buffer stayed full"):
        await producer.send_many("t", [(b"v",)])
    with pytest.raises(DeliveryError):
        await producer.close(0)


async def test_a_loop_that_never_awaits_is_stopped_before_it_fills_the_memory(kafka: Kafka, kafka_topic: str) -> None:
    settings = {"buffer.memory": 1_100_000}
    async with AsyncProducer(kafka.bootstrap_servers, settings=settings) as producer:
        deliveries: list[Any] = []

        def fill() -> None:
            for _ in range(1_000):
                deliveries.append(producer.send(kafka_topic, bytes(10_000)))

        with pytest.raises(BufferFull):
            fill()
        assert 150 < len(deliveries) < 250
        for delivery in deliveries:
            await delivery


async def test_back_pressure_ends_when_there_is_room(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, settings={"queue.buffering.max.messages": 100}) as producer:
        for number in range(5_000):
            producer.send(kafka_topic, b"%d" % number)
    assert len(await asyncio.to_thread(kafka.consume_all, kafka_topic)) == 5_000


async def test_an_unreachable_broker_is_named_within_a_bounded_time(closed_port: str) -> None:
    started = time.monotonic()
    producer = AsyncProducer(closed_port, start_timeout_s=0)
    with pytest.raises(BrokerUnavailable, match=rf"no Kafka broker answered at {closed_port} .*Connect call failed"):
        await producer.start()
    await producer.close()
    assert time.monotonic() - started < 5


async def test_a_wrong_port_is_named_within_a_bounded_time(silent_port: str) -> None:
    producer = AsyncProducer(silent_port)
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=rf"at {silent_port} .*Check that the address and port are a Kafka"):
        await producer.start(timeout_s=1)
    assert time.monotonic() - started < 5
    await producer.close(0)


async def test_flush_says_that_no_broker_answers(make_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_cluster(brokers=1)
    servers = cluster.bootstrap_servers
    producer = AsyncProducer(servers)
    await producer.start()
    cluster.stop()
    producer.send("t", b"v", key=b"k")
    with pytest.raises(DeliveryError, match=rf"t\[\?\] key=b'k': not acknowledged yet: no Kafka broker .*{servers}"):
        await producer.flush(0.5)
    with pytest.raises(DeliveryError, match="the producer was closed before a broker acknowledged the record"):
        await producer.close(0)


async def test_an_unknown_topic_fails_the_delivery_and_the_next_flush(no_auto_create: EmbeddedCluster) -> None:
    producer = AsyncProducer(no_auto_create.bootstrap_servers, settings=SOON)
    await producer.start()
    with pytest.raises(UnknownTopic, match=r"nowhere: the cluster at .* does not have this topic .* fix the name"):
        await producer.send("nowhere", b"1")
    await producer.flush()  # that failure was raised to its caller
    producer.send("nowhere", b"2", key=b"k")
    with pytest.raises(DeliveryError, match="nowhere") as caught:
        await producer.flush(10)
    assert isinstance(caught.value.__cause__, UnknownTopic)
    [undelivered] = caught.value.undelivered
    assert (undelivered.topic, undelivered.key) == ("nowhere", b"k")
    await producer.close()


async def test_a_topic_created_after_its_failure_is_found(no_auto_create: EmbeddedCluster) -> None:
    async with AsyncProducer(no_auto_create.bootstrap_servers, settings=SOON) as producer:
        with pytest.raises(UnknownTopic):
            await producer.send("later", b"1")
        no_auto_create.create_topic("later", partitions=1)
        deadline = time.monotonic() + 10
        while True:
            try:
                await producer.send("later", b"2")
                break
            except UnknownTopic:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)


async def test_a_partition_that_does_not_exist_fails_the_delivery(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(InputError, match="found partition 17, wanted one that the topic has"):
            await producer.send(kafka_topic, b"v", partition=17)


async def test_a_callback_does_not_make_a_failure_silent(no_auto_create: EmbeddedCluster) -> None:
    seen: list[object] = []
    producer = AsyncProducer(no_auto_create.bootstrap_servers, settings=SOON)
    await producer.start()
    producer.send("nowhere", b"1", on_delivery=lambda delivery: seen.append(delivery.done()))
    with pytest.raises(DeliveryError):
        await producer.flush(10)
    await producer.close()
    assert seen == [True]


async def test_close_raises_what_was_not_delivered(no_auto_create: EmbeddedCluster) -> None:
    producer = AsyncProducer(no_auto_create.bootstrap_servers, settings=SOON)
    await producer.start()
    producer.send("nowhere", b"1")
    with pytest.raises(DeliveryError, match="1 record"):
        await producer.close()


async def test_an_error_in_the_block_is_not_hidden_by_an_undelivered_record(no_auto_create: EmbeddedCluster) -> None:
    async def fail() -> None:
        async with AsyncProducer(no_auto_create.bootstrap_servers, settings=SOON) as producer:
            producer.send("nowhere", b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await fail()
    assert "nowhere" in "".join(caught.value.__notes__)


async def test_a_closed_producer_refuses_and_closing_again_does_nothing(kafka: Kafka, kafka_topic: str) -> None:
    producer = AsyncProducer(kafka.bootstrap_servers)
    with pytest.raises(LifecycleError, match="this producer is not started"):
        producer.send(kafka_topic, b"")
    await producer.start()
    await producer.close()
    await producer.close()
    with pytest.raises(LifecycleError, match="this producer is closed"):
        producer.send(kafka_topic, b"")
    for attempt in (producer.flush, producer.start):
        with pytest.raises(LifecycleError, match="this producer is closed"):
            await attempt()


async def test_waiting_for_a_delivery_can_time_out_and_be_repeated(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, settings={"linger.ms": 300}) as producer:
        delivery = producer.send(kafka_topic, b"v")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.01)
        with pytest.raises(DeliveryPending, match="not acknowledged yet"):
            delivery.exception()
        assert (await delivery).offset == 0
        assert delivery.exception() is None


async def test_a_record_is_given_up_after_its_delivery_timeout(make_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_cluster(brokers=1)
    cluster.create_topic("t", partitions=1)
    settings = {"delivery.timeout.ms": 400, "request.timeout.ms": 300, "linger.ms": 0}
    producer = AsyncProducer(cluster.bootstrap_servers, settings=settings)
    await producer.start()
    await producer.send("t", b"v")
    cluster.stop()
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"t: not acknowledged within delivery\.timeout\.ms=400"):
        await producer.send("t", b"v")
    assert time.monotonic() - started < 5
    await producer.close(0)


async def test_a_refused_batch_does_not_end_its_partition(
    kafka: Kafka, make_topic: Callable[..., str], alter_topic: Callable[[str, str, str], None]
) -> None:
    topic = make_topic(config={"max.message.bytes": 400_000})
    async with AsyncProducer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as producer:
        await producer.send(topic, b"before")
        await asyncio.to_thread(alter_topic, topic, "max.message.bytes", "200000")  # lowered behind its back
        with pytest.raises(RecordTooLarge, match=r"the limit is 200,000 bytes, set by max\.message\.bytes of topic"):
            await producer.send(topic, bytes(300_000))
        for number in range(20):
            await producer.send(topic, b"after %d" % number)
    records = await asyncio.to_thread(kafka.consume_all, topic)
    assert [record.raw_value for record in records] == [b"before", *(b"after %d" % n for n in range(20))]


async def test_many_records_share_one_delivery(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        bulk = await producer.send_many(kafka_topic, ((b"%d" % n, b"k", [("n", b"%d" % n)]) for n in range(3_000)))
        assert await bulk == 3_000
        short = [(b"a",), (b"b", b"k"), (b"c", None, (), 0, 1_700_000_000_000)]
        assert await (await producer.send_many(kafka_topic, short)) == 3
        assert await (await producer.send_many(kafka_topic, [])) == 0
    records = await asyncio.to_thread(kafka.consume_all, kafka_topic)
    assert [record.raw_value for record in records[:3_000]] == [b"%d" % n for n in range(3_000)]
    assert records[2_999].headers == [("n", b"2999")]
    assert records[-1].timestamp_ms == 1_700_000_000_000


async def test_a_bulk_lists_what_was_not_delivered(no_auto_create: EmbeddedCluster) -> None:
    producer = AsyncProducer(no_auto_create.bootstrap_servers, settings=SOON)
    await producer.start()
    bulk = await producer.send_many("nowhere", [(b"1", b"a"), (b"2", b"b")])
    with pytest.raises(DeliveryError) as caught:
        await bulk
    assert [record.key for record in caught.value.undelivered] == [b"a", b"b"]
    await producer.send_many("nowhere", [(b"1", b"c")])
    with pytest.raises(DeliveryError, match="key=b'c'"):
        await producer.close()


async def test_a_record_that_cannot_be_sent_stops_a_bulk_and_says_how_far_it_came(
    kafka: Kafka, kafka_topic: str
) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(SerializationError) as caught:
            await producer.send_many(kafka_topic, [(b"1",), (b"2",), ("three",)])
        assert "2 records before this one are on their way" in "".join(caught.value.__notes__)
    assert len(await asyncio.to_thread(kafka.consume_all, kafka_topic)) == 2


@pytest.mark.parametrize("partitioner", ["murmur2", "murmur2_random", "consistent_random", "fnv1a_random"])
async def test_null_keys_do_not_pile_up_in_one_partition(
    kafka: Kafka, make_topic: Callable[..., str], partitioner: str
) -> None:
    topic = make_topic(partitions=4)
    async with AsyncProducer(kafka.bootstrap_servers, partitioner=partitioner, profile="low_latency") as producer:
        partitions = set()
        for _ in range(60):
            for delivery in [producer.send(topic, b"v") for _ in range(10)]:
                partitions.add((await delivery).partition)
            if len(partitions) > 1:
                break
    assert len(partitions) > 1


@pytest.mark.parametrize("partitioner", ["consistent", "fnv1a"])
async def test_null_keys_in_one_partition_are_warned_of(
    kafka: Kafka, make_topic: Callable[..., str], partitioner: str
) -> None:
    topic = make_topic(partitions=4)
    async with AsyncProducer(kafka.bootstrap_servers, partitioner=partitioner) as producer:
        with pytest.warns(NullKeysInOnePartition):
            await producer.send(topic, b"v")
        deliveries = [producer.send(topic, b"v") for _ in range(50)]
        assert len({(await delivery).partition for delivery in deliveries}) == 1


async def test_keys_go_where_the_java_client_puts_them(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    from ottla.key_hashes import positive_murmur2

    topic = make_topic(partitions=5)
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        deliveries = {b"key-%d" % n: producer.send(topic, b"v", key=b"key-%d" % n) for n in range(200)}
        placed = {key: (await delivery).partition for key, delivery in deliveries.items()}
    assert placed == {key: positive_murmur2(key) % 5 for key in deliveries}


async def test_round_robin_takes_turns(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)
    async with AsyncProducer(kafka.bootstrap_servers, partitioner="round_robin") as producer:
        deliveries = [producer.send(topic, b"v", key=b"same") for _ in range(40)]
        assert Counter([(await delivery).partition for delivery in deliveries]) == dict.fromkeys(range(4), 10)


async def test_a_function_chooses_the_partition(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)

    def by_first_byte(key: bytes | None, partitions: object, available: object) -> int:
        return key[0] if key else 0

    async with AsyncProducer(kafka.bootstrap_servers, partitioner=by_first_byte) as producer:
        assert (await producer.send(topic, b"v", key=b"\x03")).partition == 3
        assert (await producer.send(topic, b"v", key=b"\x03", partition=1)).partition == 1
        with pytest.raises(InputError, match="partitioner by_first_byte chose 9, wanted one of 0 to 3"):
            await producer.send(topic, b"v", key=b"\x09")


async def test_order_is_kept_while_the_partitions_are_not_known_yet(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, partitioner="sticky") as producer:
        for number in range(500):
            producer.send(kafka_topic, b"%d" % number)
    assert [record.raw_value for record in await asyncio.to_thread(kafka.consume_all, kafka_topic)] == [
        b"%d" % n for n in range(500)
    ]


async def test_an_explicit_producer_wants_a_partition_with_each_send(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, partitioner="explicit") as producer:
        await producer.send(kafka_topic, b"v", partition=0)
        with pytest.raises(ConfigError, match=r"found no partition, wanted send\(..., partition=n\)"):
            producer.send(kafka_topic, b"v")


async def test_several_tasks_share_a_producer(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    async with AsyncProducer(kafka.bootstrap_servers) as producer:

        async def work(worker: int) -> None:
            for number in range(100):
                await producer.send(topic, b"%d" % number, key=b"%d" % worker)

        await asyncio.gather(*(work(worker) for worker in range(4)))
    by_key: dict[bytes | None, list[int]] = {}
    for record in await asyncio.to_thread(kafka.consume_all, topic):
        by_key.setdefault(record.raw_key, []).append(int(record.raw_value or b""))
    assert by_key == {b"%d" % worker: list(range(100)) for worker in range(4)}


async def test_a_producer_carried_over_a_fork_is_refused(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        await producer.send(kafka_topic, b"parent")
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
        await asyncio.to_thread(os.waitpid, child, 0)
        await producer.send(kafka_topic, b"parent goes on")
    assert len(await asyncio.to_thread(kafka.consume_all, kafka_topic)) == 2


async def test_a_setting_that_the_client_refuses_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"compression.level: found 3 .* aiokafka has no counterpart"):
        AsyncProducer("127.0.0.1:1", settings={"compression.level": 3})


async def test_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers: found nothing, wanted host:port"):
        AsyncProducer(environ={})


async def test_no_task_stays_behind(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"v")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_another_thread_is_refused(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(LifecycleError, match="this producer belongs to another event loop"):
            await asyncio.to_thread(producer.send, kafka_topic, b"v")


async def test_a_failing_partitioner_fails_its_record_only(kafka: Kafka, kafka_topic: str) -> None:
    def fail(key: bytes | None, partitions: object, available: object) -> int:
        if key == b"bad":
            raise ZeroDivisionError
        return 0

    async with AsyncProducer(kafka.bootstrap_servers, partitioner=fail) as producer:
        bad, good = producer.send(kafka_topic, b"v", key=b"bad"), producer.send(kafka_topic, b"v", key=b"good")
        with pytest.raises(InputError, match=r"partitioner fail raised ZeroDivisionError\(\)"):
            await bad
        assert (await good).partition == 0
