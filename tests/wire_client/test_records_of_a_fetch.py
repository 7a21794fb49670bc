"""Records out of the bytes of a Fetch response, one partition at a time."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import TimestampType, TopicPartition
from ottla.wire_client import CorruptBatch
from ottla.wire_client.fetching.record_chunks import decode_chunk, shown_headers
from ottla_wire.records import CompressionType, RecordData, encode_batch
from ottla_wire.records.control import AbortedTransaction, ControlType, encode_end_txn_marker

PLACE = TopicPartition("orders", 3)


def batch(base: int, count: int, **options: object) -> bytes:
    records = [
        RecordData(base + i, 1_000 + i, b"k%d" % i, b"v%d" % (base + i), [("trace", b"1")]) for i in range(count)
    ]
    return encode_batch(records, base_offset=base, **options)  # type: ignore[arg-type]


def abort_of(producer_id: int, offset: int) -> bytes:
    key, value = encode_end_txn_marker(ControlType.ABORT, 0)
    marker = RecordData(offset, 1_000, key, value)
    return encode_batch([marker], base_offset=offset, producer_id=producer_id, is_transactional=True, is_control=True)


def offsets(data: bytes, offset: int = 0, **options: object) -> tuple[list[int], int]:
    chunk = decode_chunk(data, place=PLACE, offset=offset, **options)  # type: ignore[arg-type]
    return [record.offset for record in chunk.records], chunk.next_offset


def test_a_record_has_all_that_was_in_the_batch() -> None:
    (record,) = decode_chunk(batch(7, 1, timestamp_type=1), place=PLACE, offset=0).records
    assert (record.topic, record.partition, record.offset) == ("orders", 3, 7)
    assert (record.raw_key, record.key, record.raw_value, record.value) == (b"k0", b"k0", b"v7", b"v7")
    assert (record.timestamp_ms, record.timestamp_type) == (1_000, TimestampType.LOG_APPEND_TIME)
    assert record.headers == [("trace", b"1")]


def test_a_chunk_begins_at_the_offset_wanted_and_ends_behind_the_last_whole_batch() -> None:
    data = batch(0, 3) + batch(3, 3) + batch(6, 3)[:-1]
    assert offsets(data, 1) == ([1, 2, 3, 4, 5], 6)
    assert offsets(data, 4) == ([4, 5], 6)
    assert offsets(data, 6) == ([], 6)
    assert offsets(b"", 6) == ([], 6)


def test_offsets_that_compaction_removed_are_behind_the_next_one() -> None:
    assert offsets(batch(0, 1, last_offset=9), 0) == ([0], 10)
    assert offsets(encode_batch([], base_offset=0, last_offset=9), 0) == ([], 10)


def test_aborted_and_control_records_are_passed_and_not_shown() -> None:
    of_a_transaction = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    data = batch(0, 2, **of_a_transaction) + abort_of(5, 2) + batch(3, 2, **of_a_transaction)
    assert offsets(data, aborted=[AbortedTransaction(5, 0)]) == ([3, 4], 5)
    assert offsets(data) == ([0, 1, 3, 4], 5)


def test_a_chunk_ends_before_a_batch_that_cannot_be_read_and_the_next_one_names_it() -> None:
    data = bytearray(batch(0, 3) + batch(3, 3))
    data[-1] ^= 1
    assert offsets(bytes(data)) == ([0, 1, 2], 3)
    with pytest.raises(CorruptBatch, match="orders-3: nothing can be read at offset 3: the batch at offset 3 does not"):
        decode_chunk(data, place=PLACE, offset=3)


def test_a_chunk_ends_where_it_has_become_too_large() -> None:
    huge = [RecordData(0, 1_000, None, bytes(1_000_000))]
    data = b"".join(
        encode_batch([each._replace(offset=n) for each in huge], base_offset=n, compression=CompressionType.ZSTD)
        for n in range(50)
    )
    assert len(data) < 10_000
    assert offsets(data, most_plain_bytes=2_500_000) == ([0, 1, 2], 3)


@given(junk=st.binary(max_size=200), at=st.integers(0, 200))
def test_whatever_the_bytes_are_the_error_is_one_of_ottla(junk: bytes, at: int) -> None:
    data = bytearray(batch(0, 3) * 2)
    data[at : at + len(junk)] = junk
    with suppress(CorruptBatch):
        found, next_offset = offsets(bytes(data), 1)
        assert found == sorted(set(found))
        assert all(1 <= offset < next_offset for offset in found)


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=5)), max_size=5))
def test_header_keys_keep_their_bytes_and_are_shown_as_text(headers: list[tuple[bytes, bytes | None]]) -> None:
    kept = [(key.decode("utf-8", "surrogateescape"), value) for key, value in headers]
    (record,) = decode_chunk(encode_batch([RecordData(0, 0, None, None, kept)]), place=PLACE, offset=0).records
    assert record.headers == shown_headers(kept)
    for (key, value), (shown, same) in zip(headers, record.headers, strict=True):
        assert (shown, same) == (key.decode("utf-8", "backslashreplace"), value)
        shown.encode()
