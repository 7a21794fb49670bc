"""Records of fetched batches as plain tuples: which are wanted, how many at a time, and bytes that are no batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla.wire_client.fetching.record_rows import AT_ONCE, RecordRows, rows_of
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import CompressionType, RecordData, decode_batch, encode_batch, iter_rows

LIMITS = DecodeLimits()


def records(*offsets: int) -> list[RecordData]:
    return [RecordData(offset, 1_000 + offset, b"k%d" % offset, b"v" * (offset % 200), ()) for offset in offsets]


def found(data: bytes, start: int = 0, end: int | None = None, *, check_crcs: bool = True) -> FetchedBatches:
    batches = FetchedBatches()
    segment = Segment(topic="orders", partition=3, data=memoryview(data), start=start, end=end)
    batches.collect(segment, Isolation.READ_COMMITTED, check_crcs)
    return batches


def read(data: bytes, start: int = 0, end: int | None = None) -> list[RecordRows]:
    return list(rows_of(found(data, start, end), LIMITS))


def offsets(blocks: Sequence[RecordRows]) -> list[int]:
    return [row[0] for block in blocks for row in block.rows]


@given(st.integers(0, 12), st.integers(0, 12))
def test_only_what_is_in_the_range_is_given(start: int, end: int) -> None:
    data = encode_batch(records(0, 1, 2, 3, 4)) + encode_batch(records(5, 7, 9), base_offset=5)
    wanted = [offset for offset in (0, 1, 2, 3, 4, 5, 7, 9) if start <= offset < end]
    assert offsets(read(data, start, end)) == wanted
    assert offsets(read(data, start)) == [offset for offset in (0, 1, 2, 3, 4, 5, 7, 9) if offset >= start]


@given(
    st.lists(
        st.builds(
            RecordData,
            offset=st.just(0),
            timestamp_ms=st.integers(-1, 2**62),
            key=st.none() | st.binary(max_size=200),
            value=st.none() | st.binary(max_size=20_000),
            headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([CompressionType.NONE, CompressionType.LZ4]),
    st.integers(1, 3),
)
def test_rows_are_the_records_however_many_at_a_time(
    given_records: list[RecordData], codec: CompressionType, at_once: int
) -> None:
    numbered = [record._replace(offset=number) for number, record in enumerate(given_records)]
    data = encode_batch(numbered, compression=codec)
    parts = list(iter_rows(data, at_once=at_once))
    assert all(len(part) <= at_once for part in parts)
    rows = [(at, ms, key, value, list(headers)) for part in parts for at, ms, key, value, headers in part]
    assert rows == [tuple(each) for each in numbered] == [tuple(each) for each in decode_batch(data)]


def test_a_batch_of_many_records_comes_in_parts() -> None:
    blocks = read(encode_batch(records(*range(AT_ONCE + 10))))
    assert [len(block.rows) for block in blocks] == [AT_ONCE, 10]
    assert (blocks[0].topic, blocks[0].partition, blocks[0].is_append_time) == ("orders", 3, False)


def test_what_is_behind_the_end_is_not_decoded() -> None:
    data = bytearray(encode_batch(records(0, 1, 2, 3, 4)))
    data[-1] ^= 0x7E  # the last record claims headers that are not there
    broken = bytes(data)
    assert offsets(list(rows_of(found(broken, 0, 3, check_crcs=False), LIMITS))) == [0, 1, 2]
    with pytest.raises(CorruptBatch):
        list(rows_of(found(broken, check_crcs=False), LIMITS))


def test_the_brokers_time_is_said() -> None:
    (block,) = read(encode_batch(records(0, 1), timestamp_type=1, max_timestamp_ms=77))
    assert block.is_append_time
    assert [row[1] for row in block.rows] == [77, 77]


@given(st.data())
def test_any_damage_is_a_corrupt_batch_or_other_records(data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records(0, 1, 2), compression=CompressionType.NONE))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    problem = None
    try:
        for block in rows_of(found(bytes(batch), check_crcs=False), LIMITS):
            assert all(row[3] is None or isinstance(row[3], bytes) for row in block.rows)
    except CorruptBatch as error:
        problem = str(error)
    assert problem is None or "orders-3, the batch at offset 0" in problem


@given(st.binary(max_size=60))
def test_any_bytes_behind_a_header_are_records_or_refused(payload: bytes) -> None:
    batch = bytearray(encode_batch(records(0)))[:61] + payload
    batch[8:12] = (61 - 12 + len(payload)).to_bytes(4, "big")
    try:
        list(rows_of(found(bytes(batch), check_crcs=False), LIMITS))
    except CorruptBatch:
        pass


def test_a_batch_that_inflates_too_far_is_named_with_the_next_offset() -> None:
    data = encode_batch([RecordData(4, 0, None, b"\0" * 100_000)], base_offset=4, compression=CompressionType.GZIP)
    with pytest.raises(DecodeLimitExceeded, match=r"offset 4: its .* the next batch begins at offset 5"):
        list(rows_of(found(data), DecodeLimits(batch_bytes=10_000)))
