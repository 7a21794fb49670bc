"""Both ways against librdkafka, through a broker: what it writes we read, what we write it reads with CRC checks on."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.columnar import read, write
from ottla.columnar.arrays.schema import HEADERS

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

record = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=60),
        "value": st.none() | st.binary(max_size=300),
        # librdkafka takes header names as C strings, so no NUL, and refuses empty ones.
        "headers": st.lists(
            st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
                      st.none() | st.binary(max_size=20)),
            max_size=3,
        ),
        "timestamp": st.integers(1, 1_700_000_000_000),
    }
)  # fmt: skip
records = st.lists(record, min_size=1, max_size=30)
against_a_broker = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=15, deadline=None
)


KEPT = {"retention.ms": "-1"}
"""Records dated 1970 are deleted when retention next looks."""


def by_librdkafka(bootstrap_servers, topic, count, start):
    """What librdkafka reads from one partition, from `start` on."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "none", "check.crcs": True, "fetch.wait.max.ms": 20}
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=10)
            assert messages, f"only {len(found)} of {count} came"
            for m in messages:
                assert m.error() is None
                found.append(
                    {"key": m.key(), "value": m.value(), "headers": m.headers() or [], "timestamp": m.timestamp()[1]}
                )
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_writes_we_read(kafka, make_topic, codec):
    kafka_topic = make_topic(config=KEPT)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 5})
    position = 0

    @against_a_broker
    @given(records)
    def check(rows):
        nonlocal position
        for row in rows:
            producer.produce(
                kafka_topic, row["value"], row["key"], headers=row["headers"], timestamp=row["timestamp"], partition=0
            )
        assert producer.flush(10) == 0
        since = {(kafka_topic, 0): position}
        position += len(rows)
        table = read(kafka_topic, bootstrap_servers=kafka.bootstrap_servers, since=since).read_all()
        micros = table.column("timestamp").cast(pa.int64()).to_pylist()
        found = [
            {
                "key": r["key"],
                "value": r["value"],
                "headers": [(h["key"], h["value"]) for h in r["headers"]],
                "timestamp": t // 1000,
            }
            for r, t in zip(table.drop_columns(["timestamp"]).to_pylist(), micros, strict=True)
        ]
        assert found == rows

    check()


@pytest.mark.representative("snappy")
@pytest.mark.parametrize("codec", CODECS)
def test_what_we_write_librdkafka_reads(kafka, make_topic, codec):
    kafka_topic = make_topic(config=KEPT)
    position = 0

    @against_a_broker
    @given(records)
    def check(rows):
        nonlocal position
        table = pa.table(
            {
                "key": pa.array([r["key"] for r in rows], pa.binary()),
                "value": pa.array([r["value"] for r in rows], pa.binary()),
                "headers": pa.array([[{"key": k, "value": v} for k, v in r["headers"]] for r in rows], HEADERS),
                "timestamp": pa.array([r["timestamp"] for r in rows], pa.timestamp("ms", tz="UTC")),
                "partition": pa.array([0] * len(rows), pa.int32()),
            }
        )
        write(kafka_topic, table, bootstrap_servers=kafka.bootstrap_servers, settings={"compression.type": codec})
        start = position or OFFSET_BEGINNING
        position += len(rows)
        assert by_librdkafka(kafka.bootstrap_servers, kafka_topic, len(rows), start) == rows

    check()
