"""Produces with librdkafka alone, as a C program would: no Python per record, so that the broker is the limit.

The library is the one inside confluent-kafka's wheel, called by ctypes. Messages are handed over by ten
thousands (`rd_kafka_produce_batch`); a record costs what it costs in C.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import time
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition
from servers import Server

_PRODUCER = 0
_COPY = 0x2
ANY = -1
"""Any partition."""

_BATCH = 10_000
_topics = itertools.count()


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("payload_size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@functools.cache
def library() -> ctypes.CDLL | None:
    """librdkafka as confluent-kafka's wheel brings it, or None where the wheel has it inside its extension."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        return None
    library = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def produce(server: Server, size: int, codec: str, value: bytes, scale: float) -> None:
    """Idempotent, acks=all, one partition; noted as the broker's figures."""
    if library() is None:
        return
    count = int((1_000_000 if size == 100 else 200_000) * scale)
    topic = f"c-{size}-{codec}-{next(_topics)}"
    count, elapsed, cpu = timed(server, topic, value, count, codec=codec)
    _check(server, topic, count + 1)
    label = f"C client, produce {size} B {codec}"
    server.note(f"{label}, k records/s", count / elapsed / 1000)
    server.note(f"{label}, broker CPU ms/MB", cpu * 1000 / (count * size / 1e6))


def timed(
    server: Server, topic: str, value: bytes, count: int, *, codec: str = "none", partition: int = 0
) -> tuple[int, float, float]:
    """Send the value so often. Returns how many it were, the seconds, and the broker's CPU seconds.

    One record goes ahead and is not counted. With `partition` `ANY` each record goes to one of them, at random.
    """
    rdkafka = library()
    if rdkafka is None:
        raise RuntimeError("librdkafka is not beside confluent-kafka")
    at_once = min(_BATCH, count)
    count = max(1, count // at_once) * at_once
    client = _producer(rdkafka, server.bootstrap, codec)
    handle = ctypes.c_void_p(rdkafka.rd_kafka_topic_new(client, topic.encode(), None))
    payload = ctypes.create_string_buffer(value, len(value))
    batch = (_Message * at_once)()
    for message in batch:
        message.payload, message.payload_size = ctypes.addressof(payload), len(value)
    try:
        _send(rdkafka, client, handle, batch, 1, partition)
        cpu = server.cpu_s()
        begun = time.perf_counter()
        for _ in range(count // at_once):
            _send(rdkafka, client, handle, batch, at_once, partition, wait=False)
        _flush(rdkafka, client)
        elapsed = time.perf_counter() - begun
        cpu = server.cpu_s() - cpu
    finally:
        rdkafka.rd_kafka_topic_destroy(handle)
        rdkafka.rd_kafka_destroy(client)
    return count, elapsed, cpu


def _producer(rdkafka: ctypes.CDLL, bootstrap: str, codec: str) -> ctypes.c_void_p:
    words = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(rdkafka.rd_kafka_conf_new())
    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": "true",
        "compression.type": codec,
        "linger.ms": "5",
        "sticky.partitioning.linger.ms": "0",
        "message.max.bytes": "2000000",
        "enable.metrics.push": "false",
        "batch.size": "1000000",
        "queue.buffering.max.messages": "2000000",
        "queue.buffering.max.kbytes": "1048576",
    }
    for name, value in settings.items():
        if rdkafka.rd_kafka_conf_set(conf, name.encode(), value.encode(), words, 512):
            raise SystemExit(f"librdkafka: {words.value.decode()}")
    client = rdkafka.rd_kafka_new(_PRODUCER, conf, words, 512)
    if not client:
        raise SystemExit(f"librdkafka: {words.value.decode()}")
    return ctypes.c_void_p(client)


def _send(
    rdkafka: ctypes.CDLL,
    client: ctypes.c_void_p,
    topic: ctypes.c_void_p,
    batch: object,
    count: int,
    partition: int,
    *,
    wait: bool = True,
) -> None:
    taken = rdkafka.rd_kafka_produce_batch(topic, ctypes.c_int32(partition), _COPY, batch, count)
    if taken != count:
        raise SystemExit(f"librdkafka took {taken} of {count} messages")
    if wait:
        _flush(rdkafka, client)


def _flush(rdkafka: ctypes.CDLL, client: ctypes.c_void_p) -> None:
    if rdkafka.rd_kafka_flush(client, 120_000):
        raise SystemExit("librdkafka could not deliver everything within 120 s")


def _check(server: Server, topic: str, wanted: int) -> None:
    """A message that failed is no error of flush: what is in the log counts."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "check", "log_level": 0})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    if end != wanted:
        raise SystemExit(f"{server.name}: {end} records are in {topic}, wanted {wanted}")
