"""kafka-python. What the programs of this folder do and print is said in tests/kit/foreign_client.py."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from typing import Any

warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 deprecates

from kafka import (  # noqa: E402
    ConsumerGroupMetadata,
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import NewTopic  # noqa: E402
from kafka.codec import has_lz4, has_snappy, has_zstd  # noqa: E402
from kafka.errors import CommitFailedError  # noqa: E402

CHUNK = 50
COMPRESSIONS = [
    None,
    "gzip",
    *(name for name, has in {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}.items() if has()),
]


def produce(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 3, 3, topic_configs={"min.insync.replicas": "2"})])
    say("created", len(admin.describe_topics([topic])[0]["partitions"]))
    admin.close()

    sent = 0
    for compression in COMPRESSIONS:
        sent = chunk(bootstrap, topic, compression, sent)
    say("half", sent)
    told = listen()
    while not told.is_set():
        sent = chunk(bootstrap, topic, "gzip", sent)
    for compression in COMPRESSIONS:
        sent = chunk(bootstrap, topic, compression, sent)
    say("produced", sent)


def chunk(bootstrap: str, topic: str, compression: str | None, first: int) -> int:
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20)
    answers = [
        producer.send(
            topic, b"%d:%s" % (number, b"v" * 200), key=b"k%d" % number, headers=[("n", str(number).encode())]
        )
        for number in range(first, first + CHUNK)
    ]
    for answer in answers:
        answer.get(60)
    producer.close()
    return first + CHUNK


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Any) -> None:
        say("assigned", ",".join(str(each.partition) for each in sorted(assigned)))

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass


def consume(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    told = listen()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        max_poll_records=50,
    )
    # kafka-python 3.0 may join before it knows the topic, is assigned nothing, joins again, and under load never takes
    # up what the second answer assigns.
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic], listener=Listener())
    while not told.is_set():
        polled = consumer.poll(200)
        for partition, records in polled.items():
            for each in records:
                value = each.value.split(b":")[0].decode()
                n = dict(each.headers)["n"].decode()
                say("record", partition.partition, each.offset, each.key.decode(), n, value)
        with contextlib.suppress(CommitFailedError):  # it lost them meanwhile
            if polled:
                consumer.commit()
                for partition, records in polled.items():
                    say("committed", partition.partition, records[-1].offset + 1)
    consumer.close()
    say("closed")


def transact(bootstrap: str, topic: str, transactional_id: str, phase: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, compression_type="gzip")
    producer.init_transactions()
    if phase == "second":
        transaction(producer, topic, "taken-over", 0, commit=True)
        producer.close()
        read_committed(bootstrap, topic)
        return
    for number in range(6):
        transaction(producer, topic, f"t{number}", number + 1, commit=number % 2 == 0)
        if number == 2:
            say("half", number)
            sys.stdin.readline()
    producer.begin_transaction()
    send(producer, topic, "open")
    producer.flush()
    say("open")
    time.sleep(600)


def transaction(producer: Any, topic: str, name: str, offset: int, *, commit: bool) -> None:
    producer.begin_transaction()
    send(producer, topic, name)
    if offset:
        group = ConsumerGroupMetadata(f"{producer.config['transactional_id']}-group", -1, "", None)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, group)
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def send(producer: Any, topic: str, name: str) -> None:
    for number in range(9):
        producer.send(topic, f"{name}-{number}".encode(), key=name.encode(), partition=number % 3)


def read_committed(bootstrap: str, topic: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    partitions = [TopicPartition(topic, number) for number in range(3)]
    consumer.assign(partitions)
    last = {b"taken-over-%d" % number for number in range(9)}
    while last:
        for records in consumer.poll(200).values():
            for each in records:
                say("value", each.value.decode())
                last.discard(each.value)
    consumer.close()
    say("closed")


def say(*words: object) -> None:
    print("\t".join(map(str, words)), flush=True)


def listen() -> threading.Event:
    """Is set when the test has written a line."""
    told = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        told.set()

    threading.Thread(target=wait, daemon=True).start()
    return told


if __name__ == "__main__":
    {"produce": produce, "consume": consume, "transact": transact}[sys.argv[1]](*sys.argv[2:])
