from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.config import TopicConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.storage.append import AppendOrigin
from broker_embedded.storage.validator import validate_for_leader
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import BatchHeader, check_crc, parse_header
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.crc32c import crc32c
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Validated(NamedTuple):
    header: BatchHeader
    data: memoryview


def validate(data: bytes, *, origin: AppendOrigin = AppendOrigin.CLIENT, **settings: Any) -> Validated:
    given = memoryview(bytearray(data))
    config = TopicConfig(**settings)
    return Validated(*validate_for_leader(given, config=config, origin=origin, now_ms=NOW_MS, name="orders-0"))


def refusal(data: bytes, **settings: Any) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        validate(data, **settings)
    assert raised.value.message.startswith("orders-0: ")
    return raised.value


def changed(data: bytes, position: int, fmt: str, value: int) -> bytes:
    """Another value in the header, and a CRC that covers it."""
    copy = bytearray(data)
    struct.pack_into(fmt, copy, position, value)
    struct.pack_into(">I", copy, 17, crc32c(bytes(copy[21:])))
    return bytes(copy)


def test_a_good_batch_is_not_copied(make_batch: Callable[..., bytes]) -> None:
    data = memoryview(bytearray(make_batch(b"a", b"b")))
    header, found = validate_for_leader(
        data, config=TopicConfig(), origin=AppendOrigin.CLIENT, now_ms=NOW_MS, name="orders-0"
    )
    assert found is data
    assert header.record_count == 2


def test_no_record_is_opened_where_no_setting_needs_it(
    make_batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs are per batch: ten thousand records cost what one costs, but for the checksum."""

    def opened(*_: object, **__: object) -> list[RecordData]:
        raise AssertionError("a batch was opened")

    monkeypatch.setattr("broker_embedded.storage.validator.decode_batch", opened)
    data = memoryview(bytearray(make_batch(*(b"value" for _ in range(10_000)))))
    validate_for_leader(data, config=TopicConfig(), origin=AppendOrigin.CLIENT, now_ms=NOW_MS, name="orders-0")
    compacted = TopicConfig(cleanup_policy=("compact",))
    with pytest.raises(AssertionError, match="a batch was opened"):
        validate_for_leader(data, config=compacted, origin=AppendOrigin.CLIENT, now_ms=NOW_MS, name="orders-0")


@given(position=st.integers(21, 90), flip=st.integers(1, 255))
def test_a_changed_byte_behind_the_crc_is_a_corrupt_message(position: int, flip: int) -> None:
    data = bytearray(encode_batch([RecordData(0, NOW_MS, b"key", b"a value of some length")]))
    data[position] ^= flip
    assert refusal(bytes(data)).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_retired_message_formats_are_invalid_records(make_batch: Callable[..., bytes], magic: int) -> None:
    data = bytearray(make_batch(b"a"))
    data[16] = magic
    assert refusal(bytes(data)).code is ErrorCode.INVALID_RECORD
    assert refusal(bytes(data[:40])).code is ErrorCode.INVALID_RECORD


def test_an_unknown_magic_is_a_corrupt_message(make_batch: Callable[..., bytes]) -> None:
    data = bytearray(make_batch(b"a"))
    data[16] = 3
    assert refusal(bytes(data)).code is ErrorCode.CORRUPT_MESSAGE


@given(st.integers(0, 80))
def test_less_than_a_whole_batch_is_an_invalid_record(size: int) -> None:
    data = encode_batch([RecordData(0, NOW_MS, b"key", b"a value of some length")])
    assert refusal(data[:size]).code is ErrorCode.INVALID_RECORD


def test_a_batch_length_that_cannot_be_is_a_corrupt_message(make_batch: Callable[..., bytes]) -> None:
    assert refusal(changed(make_batch(b"a"), 8, ">i", 20)).code is ErrorCode.CORRUPT_MESSAGE


def test_a_client_sends_exactly_one_batch(make_batch: Callable[..., bytes]) -> None:
    one = make_batch(b"a")
    assert "exactly one" in refusal(one + one).message
    assert bytes(validate(one + one[:50]).data) == one  # a torn second one is dropped


def test_a_client_starts_at_offset_0(make_batch: Callable[..., bytes]) -> None:
    data = make_batch(b"a", base_offset=5)
    assert refusal(data).code is ErrorCode.INVALID_RECORD
    validate(data, origin=AppendOrigin.COORDINATOR)


def test_a_batch_above_max_message_bytes_is_too_large(make_batch: Callable[..., bytes]) -> None:
    data = make_batch(b"a" * 100)
    validate(data, max_message_bytes=len(data))
    error = refusal(data, max_message_bytes=len(data) - 1)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in error.message


def test_a_batch_larger_than_a_segment_is_refused(make_batch: Callable[..., bytes]) -> None:
    assert refusal(make_batch(b"a" * 100), segment_bytes=80).code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("count", [0, -1, 1, 3])
def test_record_count_and_last_offset_delta_must_agree(make_batch: Callable[..., bytes], count: int) -> None:
    assert refusal(changed(make_batch(b"a", b"b"), 57, ">i", count)).code is ErrorCode.INVALID_RECORD


def test_clients_may_not_write_control_records(make_marker: Callable[..., bytes]) -> None:
    data = changed(make_marker(7, 0, commit=True), 53, ">i", 0)
    assert "control" in refusal(data).message
    validate(data, origin=AppendOrigin.COORDINATOR)


def test_an_idempotent_batch_has_a_sequence(make_batch: Callable[..., bytes]) -> None:
    data = make_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=-1)
    assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_an_unknown_compression_is_refused(make_batch: Callable[..., bytes]) -> None:
    assert refusal(changed(make_batch(b"a"), 21, ">h", 6)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# -- timestamps


def test_timestamps_in_the_far_future_are_refused_record_by_record(make_batch: Callable[..., bytes]) -> None:
    data = make_batch(b"a", b"b", b"c", timestamps=[NOW_MS, NOW_MS + HOUR_MS + 1, NOW_MS + HOUR_MS])
    error = refusal(data)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [e.batch_index for e in error.record_errors] == [1]
    validate(data, message_timestamp_after_max_ms=HOUR_MS + 1)
    validate(data, message_timestamp_type="LogAppendTime")


def test_timestamps_in_the_far_past_are_refused_only_if_asked_for(make_batch: Callable[..., bytes]) -> None:
    data = make_batch(b"a", b"b", timestamps=[NOW_MS - HOUR_MS - 1, NOW_MS])
    validate(data)
    error = refusal(data, message_timestamp_before_max_ms=HOUR_MS)
    assert (error.code, [e.batch_index for e in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [0])


def test_records_without_a_timestamp_are_in_range(make_batch: Callable[..., bytes]) -> None:
    validate(make_batch(b"a", timestamp_ms=-1), message_timestamp_before_max_ms=HOUR_MS)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_producer_may_not_claim_log_append_time(make_batch: Callable[..., bytes], kind: str) -> None:
    error = refusal(make_batch(b"a", timestamp_type=1), message_timestamp_type=kind)
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_a_header_with_a_false_largest_timestamp_is_corrected(make_batch: Callable[..., bytes]) -> None:
    data = changed(make_batch(b"a", b"b", timestamps=[NOW_MS - 5, NOW_MS - 3]), 35, ">q", NOW_MS + 2 * HOUR_MS)
    found = validate(data)
    assert found.header.max_timestamp == NOW_MS - 3
    assert check_crc(found.data, 0, found.header)
    assert decode_batch(found.data) == decode_batch(data)


# -- compaction and compression


def test_a_compacted_topic_needs_keys(make_batch: Callable[..., bytes]) -> None:
    data = make_batch(b"a", b"b", b"c", keys=[b"k", None, None])
    validate(data)
    error = refusal(data, cleanup_policy=("compact",))
    assert error.code is ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in error.record_errors] == [1, 2]
    assert "record 1" in error.message


@pytest.mark.parametrize("codec", list(CompressionType))
def test_compressed_records_are_opened_where_a_setting_needs_it(
    make_batch: Callable[..., bytes], codec: CompressionType
) -> None:
    data = make_batch(b"a" * 50, b"b", keys=[b"k", None], compression=codec)
    assert [e.batch_index for e in refusal(data, cleanup_policy=("compact",)).record_errors] == [1]


def test_compressed_garbage_with_a_good_crc_is_a_corrupt_message(make_batch: Callable[..., bytes]) -> None:
    data = bytearray(make_batch(b"a" * 50, compression=CompressionType.GZIP))
    data[61:] = b"\x00" * (len(data) - 61)
    data = bytearray(changed(bytes(data), 21, ">h", int(CompressionType.GZIP)))
    assert refusal(bytes(data), cleanup_policy=("compact",)).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("setting", "codec"),
    [("lz4", CompressionType.LZ4), ("zstd", CompressionType.ZSTD), ("uncompressed", CompressionType.NONE)],
)
def test_the_topics_compression_wins_over_the_producers(
    make_batch: Callable[..., bytes], setting: str, codec: CompressionType
) -> None:
    options = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 4, "is_transactional": True}
    data = make_batch(b"a" * 50, b"b", compression=CompressionType.GZIP, **options)
    found = validate(data, compression_type=setting)
    before, after = parse_header(data), found.header
    assert after.compression == codec
    assert after[9:] == before[9:]  # producer, epoch, sequence, count
    assert after.is_transactional
    assert decode_batch(found.data) == decode_batch(data)
    assert validate(bytes(found.data), compression_type=setting).header == after
