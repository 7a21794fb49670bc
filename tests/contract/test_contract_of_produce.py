"""What Produce answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from apache_kafka import wanted

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.batch import BATCH_OVERHEAD, compute_crc, parse_header
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import decode_batch

DAY_MS = 86_400_000
Make = Callable[..., bytes]


def test_offsets_follow_each_other(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic()
    first = kafka.produce(topic, make_records(b"a", b"b"))
    second = kafka.produce(topic, make_records(b"c"))
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == 0


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement_stores_the_record(kafka: Any, make_records: Make, acks: int) -> None:
    topic = kafka.create_topic()
    if acks:
        assert kafka.produce(topic, make_records(b"a"), acks=acks).error_code == 0
    else:
        data = {"name": topic, "partition_data": [{"index": 0, "records": make_records(b"a")}]}
        kafka.send(ApiKey.PRODUCE, 9, {"acks": 0, "timeout_ms": 5_000, "topic_data": [data]})
    kafka._sent.pop(kafka._next_id - 1, None)
    kafka.until(lambda: kafka.offset(topic, -1) == 1)


def test_a_partition_that_does_not_exist_is_unknown(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic()
    answer = kafka.produce(topic, make_records(b"a"), partition=7)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.base_offset == -1


def test_a_topic_id_that_does_not_exist_is_unknown(kafka: Any, make_records: Make) -> None:
    data = {"topic_id": b"\x07" * 16, "partition_data": [{"index": 0, "records": make_records(b"a")}]}
    answer = kafka.call(ApiKey.PRODUCE, 13, {"acks": -1, "timeout_ms": 5_000, "topic_data": [data]})
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_are_all_one_or_none(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic()
    answer = kafka.produce(topic, make_records(b"a"), acks=2)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_one_partition_s_error_leaves_the_others_alone(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(partitions=2)
    good, bad = make_records(b"a"), bytearray(make_records(b"b"))
    bad[-1] ^= 0xFF
    parts = [{"index": 0, "records": good}, {"index": 1, "records": bytes(bad)}]
    body = {"acks": -1, "timeout_ms": 5_000, "topic_data": [{"name": topic, "partition_data": parts}]}
    answer = kafka.call(ApiKey.PRODUCE, 9, body)
    errors = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert errors == {0: 0, 1: ErrorCode.CORRUPT_MESSAGE}


def test_a_batch_above_max_message_bytes_is_too_large(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(configs={"max.message.bytes": "1000"})
    answer = kafka.produce(topic, make_records(b"x" * 2_000))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_wants_keys_and_names_the_record_without(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(configs={"cleanup.policy": "compact"})
    answer = kafka.produce(topic, make_records((b"k", b"v"), (None, b"v")))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert kafka.produce(topic, make_records((b"k", b"v"))).error_code == 0


def test_a_timestamp_far_in_the_future_is_refused(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(configs={"message.timestamp.after.max.ms": "1000"})
    answer = kafka.produce(topic, make_records(b"a", timestamp_ms=int(time.time() * 1000) + DAY_MS))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_timestamp_far_in_the_past_is_refused_when_the_topic_says_so(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(configs={"message.timestamp.before.max.ms": "1000"})
    answer = kafka.produce(topic, make_records(b"a", timestamp_ms=int(time.time() * 1000) - DAY_MS))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_with_log_append_time_the_broker_s_clock_counts(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    answer = kafka.produce(topic, make_records(b"a", timestamp_ms=1))
    assert answer.log_append_time_ms > 1_600_000_000_000
    (record,) = decode_batch(bytes(kafka.fetch(topic).records), 0)
    assert record.timestamp_ms == answer.log_append_time_ms


def test_internal_topics_are_not_for_clients(kafka: Any, make_records: Make) -> None:
    body = {"key_type": 0, "coordinator_keys": ["any"]}
    kafka.until(lambda: kafka.call(ApiKey.FIND_COORDINATOR, 4, body).coordinators[0].error_code == 0)
    answer = kafka.produce("__consumer_offsets", make_records((b"k", b"v")))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_more_in_sync_replicas_than_there_are_cannot_be_asked_for(kafka: Any, make_records: Make) -> None:
    topic = kafka.create_topic(configs={"min.insync.replicas": "2"})
    assert kafka.produce(topic, make_records(b"a"), acks=-1).error_code == 0


class TestIdempotence:
    @staticmethod
    def producer(kafka: Any) -> dict[str, int]:
        def ask() -> Any:
            return kafka.call(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})

        kafka.until(lambda: ask().error_code == 0)
        answer = ask()
        return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def test_a_repeated_batch_gets_the_offset_of_the_first(self, kafka: Any, make_records: Make) -> None:
        topic, ids = kafka.create_topic(), self.producer(kafka)
        batch = make_records(b"a", b"b", base_sequence=0, **ids)
        assert kafka.produce(topic, batch).base_offset == 0
        kafka.produce(topic, make_records(b"c", base_sequence=2, **ids))
        again = kafka.produce(topic, batch)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert kafka.offset(topic, -1) == 3

    def test_a_gap_in_the_sequence_is_refused(self, kafka: Any, make_records: Make) -> None:
        topic, ids = kafka.create_topic(), self.producer(kafka)
        kafka.produce(topic, make_records(b"a", base_sequence=0, **ids))
        answer = kafka.produce(topic, make_records(b"b", base_sequence=5, **ids))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_repetition_older_than_five_batches_is_not_recognised(self, kafka: Any, make_records: Make) -> None:
        topic, ids = kafka.create_topic(), self.producer(kafka)
        batches = [make_records(b"x", base_sequence=number, **ids) for number in range(8)]
        for batch in batches:
            assert kafka.produce(topic, batch).error_code == 0
        assert kafka.produce(topic, batches[3]).error_code == 0
        assert kafka.produce(topic, batches[0]).error_code in (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
        assert kafka.offset(topic, -1) == 8

    def test_an_older_epoch_is_fenced(self, kafka: Any, make_records: Make) -> None:
        topic, ids = kafka.create_topic(), self.producer(kafka)
        newer = {**ids, "producer_epoch": ids["producer_epoch"] + 1}
        assert kafka.produce(topic, make_records(b"a", base_sequence=0, **newer)).error_code == 0
        answer = kafka.produce(topic, make_records(b"b", base_sequence=0, **ids))
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_new_epoch_starts_its_sequence_at_zero(self, kafka: Any, make_records: Make) -> None:
        topic, ids = kafka.create_topic(), self.producer(kafka)
        kafka.produce(topic, make_records(b"a", base_sequence=0, **ids))
        newer = {**ids, "producer_epoch": ids["producer_epoch"] + 1}
        answer = kafka.produce(topic, make_records(b"b", base_sequence=3, **newer))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_record_larger_than_the_limit_when_decompressed_is_refused(kafka: Any, make_records: Make) -> None:
    if (version := wanted()) is not None and version < "4.4":
        pytest.skip(f"Apache Kafka {version} does not have max.decompressed.message.bytes")
    topic = kafka.create_topic(configs={"max.decompressed.message.bytes": "1000"})
    small, large = (make_records(b"x", b"y" * size, compression=CompressionType.GZIP) for size in (900, 2_000))
    assert kafka.produce(topic, small).error_code == 0
    assert kafka.produce(topic, large).error_code == ErrorCode.INVALID_RECORD
    assert kafka.produce(topic, make_records(b"y" * 2_000)).error_code == 0, "what is not compressed is not meant"


COMPRESSED = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]


def with_right_crc(data: bytearray) -> bytes:
    header = parse_header(bytes(data), 0)
    data[17:21] = compute_crc(bytes(data), 0, header).to_bytes(4, "big")
    return bytes(data)


def noise(make_records: Make, compression: CompressionType) -> bytes:
    """A batch whose compressed records are none."""
    data = bytearray(make_records(b"a" * 100, b"b" * 100, compression=compression))
    data[BATCH_OVERHEAD:] = bytes(0x5A for _ in data[BATCH_OVERHEAD:])
    return with_right_crc(data)


def claiming(make_records: Make, count: int, compression: CompressionType) -> bytes:
    """A batch of two records that says that it has `count`."""
    data = bytearray(make_records(b"a", b"b", compression=compression))
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    return with_right_crc(data)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_compressed_noise_is_not_appended(kafka: Any, make_records: Make, compression: CompressionType) -> None:
    topic = kafka.create_topic()
    answer = kafka.produce(topic, noise(make_records, compression))
    assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR), (
        answer
    )
    assert kafka.offset(topic, -1) == 0


@pytest.mark.parametrize("compression", [CompressionType.NONE, *COMPRESSED])
@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_a_batch_with_another_number_of_records_than_it_says_is_not_appended(
    kafka: Any, make_records: Make, compression: CompressionType, count: int
) -> None:
    topic = kafka.create_topic()
    answer = kafka.produce(topic, claiming(make_records, count, compression))
    assert answer.error_code == ErrorCode.INVALID_RECORD, answer
    assert kafka.offset(topic, -1) == 0
