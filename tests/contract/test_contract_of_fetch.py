"""What Fetch and ListOffsets answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.batch import iter_headers
from ottla_wire.records.record import decode_batch

Make = Callable[..., bytes]


@pytest.fixture
def topic(kafka: Any, make_records: Make) -> str:
    """Three batches: offsets 0 to 2, 3, and 4 to 5."""
    name: str = kafka.create_topic()
    for values in ((b"a", b"b", b"c"), (b"d",), (b"e", b"f")):
        assert kafka.produce(name, make_records(*values)).error_code == 0
    return name


def test_what_was_written_is_read(kafka: Any, topic: str) -> None:
    answer = kafka.fetch(topic)
    assert [header.base_offset for header in iter_headers(bytes(answer.records))] == [0, 3, 4]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (6, 6, 0)


def test_an_offset_inside_a_batch_brings_the_whole_batch(kafka: Any, topic: str) -> None:
    records = bytes(kafka.fetch(topic, 1).records)
    assert next(iter_headers(records)).base_offset == 0


def test_at_least_one_batch_comes_whatever_the_limits_say(kafka: Any, topic: str) -> None:
    answer = kafka.fetch(topic, 0, partition_max_bytes=1)
    assert [header.base_offset for header in iter_headers(bytes(answer.records))] == [0]
    answer = kafka.fetch(topic, 0, max_bytes=1)
    assert next(header.base_offset for header in iter_headers(bytes(answer.records))) == 0


def test_the_end_of_the_log_is_empty_and_no_error(kafka: Any, topic: str) -> None:
    answer = kafka.fetch(topic, 6)
    assert (answer.error_code, bytes(answer.records or b"")) == (0, b"")


@pytest.mark.parametrize("offset", [7, -5])
def test_an_offset_outside_of_the_log_is_out_of_range(kafka: Any, topic: str, offset: int) -> None:
    answer = kafka.fetch(topic, offset)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_unknown_partition_is_unknown(kafka: Any, topic: str) -> None:
    assert kafka.fetch(topic, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_unknown(kafka: Any) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    body = {"max_wait_ms": 0, "min_bytes": 1, "topics": [{"topic_id": b"\x07" * 16, "partitions": [partition]}]}
    answer = kafka.call(ApiKey.FETCH, 13, body)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_leader_epoch_of_the_future_is_unknown(kafka: Any, topic: str) -> None:
    answer = kafka.fetch(topic, current_leader_epoch=50)
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_long_poll_is_ended_by_a_produce(kafka: Any, connect: Callable[[], Any], make_records: Make) -> None:
    topic = kafka.create_topic()
    waiting = connect()
    waiting.send(ApiKey.FETCH, 11, waiting.fetch_body(topic, 0, max_wait_ms=25_000))
    kafka.produce(topic, make_records(b"late"))
    _, answer = waiting.receive()
    (record,) = decode_batch(bytes(answer.responses[0].partitions[0].records), 0)
    assert record.value == b"late"


def test_a_fetch_session_brings_only_what_is_new(kafka: Any, topic: str, make_records: Make) -> None:
    body = kafka.fetch_body(topic, 6, session_id=0, session_epoch=0)
    first = kafka.call(ApiKey.FETCH, 11, body)
    assert first.session_id > 0
    nothing = {"max_wait_ms": 0, "min_bytes": 1, "topics": [], "session_id": first.session_id, "session_epoch": 1}
    assert len(kafka.call(ApiKey.FETCH, 11, nothing).responses) == 0
    kafka.produce(topic, make_records(b"new"))
    answer = kafka.call(ApiKey.FETCH, 11, {**nothing, "session_epoch": 2})
    assert [each.partition_index for each in answer.responses[0].partitions] == [0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [(1_234_567, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), (0, 9, ErrorCode.INVALID_FETCH_SESSION_EPOCH)],
)
def test_a_session_that_is_not_known_is_refused(
    kafka: Any, topic: str, session_id: int, epoch: int, error: ErrorCode
) -> None:
    if not session_id:
        first = kafka.call(ApiKey.FETCH, 11, kafka.fetch_body(topic, 0, session_id=0, session_epoch=0))
        session_id = first.session_id
    body = {"max_wait_ms": 0, "min_bytes": 1, "topics": [], "session_id": session_id, "session_epoch": epoch}
    assert kafka.call(ApiKey.FETCH, 11, body).error_code == error


class TestOffsets:
    def test_the_start_and_the_end(self, kafka: Any, topic: str) -> None:
        assert (kafka.offset(topic, -2), kafka.offset(topic, -1)) == (0, 6)

    def test_by_time_the_first_record_at_or_after_it(self, kafka: Any, make_records: Make) -> None:
        topic = kafka.create_topic()
        now_ms = int(time.time() * 1000)
        kafka.produce(topic, make_records(b"a", b"b", b"c", timestamp_ms=now_ms))
        kafka.produce(topic, make_records(b"d", timestamp_ms=now_ms + 100))
        answers = [kafka.list_offset(topic, now_ms + add) for add in (-5, 0, 1, 2, 3, 100)]
        assert [each.offset for each in answers] == [0, 0, 1, 2, 3, 3]
        assert [each.timestamp - now_ms for each in answers] == [0, 0, 1, 2, 100, 100]

    def test_a_time_after_the_last_record_has_no_offset(self, kafka: Any, topic: str) -> None:
        answer = kafka.list_offset(topic, int(time.time() * 1000) + 3_600_000)
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)

    def test_the_record_with_the_largest_timestamp(self, kafka: Any, make_records: Make) -> None:
        topic = kafka.create_topic()
        now_ms = int(time.time() * 1000)
        kafka.produce(topic, make_records(b"a", timestamp_ms=now_ms + 500))
        kafka.produce(topic, make_records(b"b", timestamp_ms=now_ms))
        answer = kafka.list_offset(topic, -3)
        assert (answer.offset, answer.timestamp) == (0, now_ms + 500)

    def test_an_unknown_partition(self, kafka: Any, topic: str) -> None:
        answer = kafka.list_offset(topic, -1, partition=9)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_end_of_an_epoch(self, kafka: Any, topic: str) -> None:
        def ask(epoch: int) -> Any:
            partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
            body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
            return kafka.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, body).topics[0].partitions[0]

        assert (ask(0).leader_epoch, ask(0).end_offset) == (0, 6)
        assert (ask(5).leader_epoch, ask(5).end_offset) == (-1, -1)


class TestDeletedRecords:
    def delete(self, kafka: Any, topic: str, offset: int) -> Any:
        body = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]}
        return kafka.call(ApiKey.DELETE_RECORDS, 2, {**body, "timeout_ms": 10_000}).topics[0].partitions[0]

    def test_the_log_starts_where_the_deletion_ended(self, kafka: Any, topic: str) -> None:
        answer = self.delete(kafka, topic, 4)
        assert (answer.error_code, answer.low_watermark) == (0, 4)
        assert kafka.offset(topic, -2) == 4
        assert kafka.fetch(topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_minus_one_deletes_up_to_the_high_watermark(self, kafka: Any, topic: str) -> None:
        assert self.delete(kafka, topic, -1).low_watermark == 6

    def test_beyond_the_high_watermark_is_out_of_range(self, kafka: Any, topic: str) -> None:
        assert self.delete(kafka, topic, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
