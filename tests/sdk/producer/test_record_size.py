"""The encoded size of a record is exact: compared with real batches, and with a broker's own verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Producer as ConfluentProducer
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.producer import size_in_own_batch, size_of_record
from ottla.producer.size import BATCH_OVERHEAD, most_bytes, varint_size
from ottla_wire.records import RecordData, encode_batch

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka

Header = tuple[str, bytes | None]

contents = st.one_of(st.none(), st.binary(max_size=300), st.integers(0, 20_000).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=80), st.one_of(st.none(), st.binary(max_size=200))), max_size=70)


def batch(records: list[tuple[bytes | None, bytes | None, list[Header]]], timestamps: list[int]) -> bytes:
    return bytes(
        encode_batch(
            [
                RecordData(offset, timestamp, key, value, record_headers)
                for offset, ((key, value, record_headers), timestamp) in enumerate(
                    zip(records, timestamps, strict=True)
                )
            ]
        )
    )


@given(key=contents, value=contents, record_headers=headers)
@example(key=None, value=None, record_headers=[])
@example(key=b"", value=b"", record_headers=[("", None), ("é" * 63, b"")])
def test_the_size_of_a_record_in_its_own_batch_is_that_batchs_length(
    key: bytes | None, value: bytes | None, record_headers: list[Header]
) -> None:
    wanted = len(batch([(key, value, record_headers)], [1_700_000_000_000]))
    assert size_in_own_batch(key, value, record_headers) == wanted
    assert most_bytes(key, value, record_headers) >= wanted


@given(
    records=st.lists(st.tuples(contents, contents, headers), min_size=1, max_size=20),
    steps=st.lists(st.integers(-(1 << 40), 1 << 40), min_size=20, max_size=20),
)
def test_the_sizes_of_records_add_up_to_their_batch(
    records: list[tuple[bytes | None, bytes | None, list[Header]]], steps: list[int]
) -> None:
    first = 1_700_000_000_000
    timestamps = [first, *(first + step for step in steps[1:])][: len(records)]
    total = BATCH_OVERHEAD + sum(
        size_of_record(*record, timestamp_delta=timestamp - first, offset_delta=offset)
        for offset, (record, timestamp) in enumerate(zip(records, timestamps, strict=True))
    )
    assert total == len(batch(records, timestamps))


@given(st.integers(-(1 << 62), 1 << 62))
def test_a_varint_takes_seven_bits_of_the_zigzag_number_per_byte(number: int) -> None:
    zigzag = (number << 1) ^ (number >> 63)
    length = 1
    while zigzag >= 1 << (7 * length):
        length += 1
    assert varint_size(number) == length


@pytest.mark.parametrize(
    ("number", "size"), [(0, 1), (-1, 1), (63, 1), (64, 2), (-64, 1), (-65, 2), (8191, 2), (8192, 3)]
)
def test_a_varint_grows_at_its_edges(number: int, size: int) -> None:
    assert varint_size(number) == size


@pytest.mark.parametrize(
    ("key", "value", "record_headers"),
    [
        (None, bytes(5_000), []),
        (b"key", bytes(63), [("trace", b"1" * 50), ("empty", b""), ("null", None)]),
        (b"", None, [("naïve", bytes(200))]),
        (bytes(8_192), bytes(8_191), [(f"h{n}", bytes(n)) for n in range(65)]),
    ],
)
def test_a_broker_draws_the_line_for_librdkafkas_batch_at_exactly_this_size(
    kafka: Kafka,
    make_topic: Callable[..., str],
    key: bytes | None,
    value: bytes | None,
    record_headers: list[Header],
) -> None:
    size = size_in_own_batch(key, value, record_headers)
    fits = make_topic("fits", config={"max.message.bytes": size})
    too_small = make_topic("too-small", config={"max.message.bytes": size - 1})
    answers: dict[str, int | None] = {}
    producer = ConfluentProducer(
        {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "none", "log_level": 0, "linger.ms": 0}
    )
    for topic in (fits, too_small):
        producer.produce(
            topic,
            value,
            key,
            headers=record_headers,
            on_delivery=lambda error, message: answers.update(
                {message.topic(): None if error is None else error.code()}
            ),
        )
    assert producer.flush(10) == 0
    assert answers == {fits: None, too_small: KafkaError.MSG_SIZE_TOO_LARGE}
