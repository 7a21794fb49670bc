"""Bytes made to break the decoder: it refuses them, in bounded memory and time, and says where they are."""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap

import hostile_bytes
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar import read
from ottla.columnar.reading.decode import PART_BYTES, scan
from ottla.columnar.values.decoding import decoder_for
from ottla.errors import ConfigError
from ottla.serdes import Avro, SerdeContext
from ottla.wire_client.client_settings import wire_settings
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import Segment
from ottla_wire.protocol.primitives import encode_varint
from ottla_wire.records import CompressionType, RecordData, compress, crc32c, encode_batch
from ottla_wire.records.batch import CRC_COVERS_FROM, HEADER

FRONT = bytes(3)
"""A record's attributes, timestamp delta and offset delta, all zero."""
NULL = encode_varint(-1)
EMPTY = encode_varint(0)
HUGE = [2**31 - 1, 2**31, 2**62, 2**63 - 1, -2, -(2**31), -(2**63)]


def record(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def batch_of(
    payload: bytes, count: int, *, codec: int = 0, base_offset: int = 0, last_delta: int | None = None
) -> bytes:
    """A batch with this payload, whose length and CRC are right."""
    payload = compress(CompressionType(codec), payload)
    last = count - 1 if last_delta is None else last_delta
    head = bytearray(HEADER.pack(base_offset, 49 + len(payload), 0, 2, 0, codec, last, 0, 0, -1, -1, -1, count))
    struct.pack_into(">I", head, CRC_COVERS_FROM - 4, crc32c(bytes(head[CRC_COVERS_FROM:]) + payload))
    return bytes(head) + payload


def batches_of(data: bytes, *, limits: DecodeLimits | None = None) -> list[pa.RecordBatch]:
    found = scan([Segment(topic="orders", partition=3, data=memoryview(data), start=0)])
    batches = list(found.batches(limits=limits or DecodeLimits()))
    for batch in batches:
        batch.validate(full=True)
    return batches


@pytest.mark.parametrize("length", HUGE)
@pytest.mark.parametrize(
    "ends",
    [
        lambda length: [length, b"v" * 20],
        lambda length: [NULL, length, b"v" * 20],
        lambda length: [NULL, EMPTY, length, b"h" * 20],
        lambda length: [NULL, EMPTY, encode_varint(1), length, b"h" * 20],
        lambda length: [NULL, EMPTY, encode_varint(1), EMPTY, length, b"h" * 20],
    ],
    ids=["key", "value", "header count", "header key", "header value"],
)
@pytest.mark.parametrize("rows", [1, 3, 400])
def test_a_length_that_no_record_can_have_is_refused_with_its_place(length, ends, rows):
    broken = record(FRONT, *ends(encode_varint(length)))
    fine = record(FRONT, NULL, EMPTY, EMPTY)
    data = batch_of(fine + broken * rows, rows + 1)
    with pytest.raises(CorruptBatch, match="orders-3, the batch at offset 0: the record at offset 0 is corrupt"):
        batches_of(data)


def test_a_length_whose_end_overflows_corrupts_no_memory():
    """What such a batch did to the heap ended the process, so it is opened in one of its own."""
    broken = record(FRONT, NULL, encode_varint(2**63 - 1), b"v" * 20)
    program = f"""
        from ottla.columnar.reading.decode import PART_BYTES, scan
        from ottla.wire_client.errors import CorruptBatch
        from ottla.wire_client.fetching.fetched_batches import Segment

        data = memoryview({batch_of(broken * 9, 9)!r})
        for _ in range(200):
            try:
                list(scan([Segment(topic="orders", partition=3, data=data, start=0)]).batches())
            except CorruptBatch:
                continue
            raise AssertionError("it was read")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_record_never_reaches_into_the_next_batch():
    longer = record(FRONT, NULL, encode_varint(70), b"v" * 3)
    data = batch_of(longer, 1) + batch_of(record(FRONT, NULL, EMPTY, EMPTY), 1, base_offset=1)
    with pytest.raises(CorruptBatch, match="the record at offset 0 is corrupt: its value"):
        batches_of(data)


@pytest.mark.parametrize(("delta", "last"), [(1, 0), (-1, 0), (2**62, 5), (-(2**63), 5)])
def test_a_record_outside_of_its_batchs_offsets_is_refused(delta, last):
    data = batch_of(record(b"\0\0", encode_varint(delta), NULL, EMPTY, EMPTY), 1, last_delta=last)
    with pytest.raises(CorruptBatch, match="its offset lies outside of its batch"):
        batches_of(data)


@pytest.mark.parametrize(
    ("base", "delta"), [(2**63 - 1, 5), (0, 2**63 - 1), (-(2**63), -5), (5, -(2**63)), (-5, 2**62)]
)
def test_timestamps_saturate_instead_of_wrapping(base, delta):
    data = bytearray(batch_of(record(b"\0", encode_varint(delta), b"\0", NULL, EMPTY, EMPTY), 1))
    struct.pack_into(">q", data, 27, base)
    struct.pack_into(">I", data, CRC_COVERS_FROM - 4, crc32c(bytes(data[CRC_COVERS_FROM:])))
    (batch,) = batches_of(bytes(data))
    largest = (2**63 - 1) // 1000
    expected = max(-largest, min(largest, base + delta))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [expected * 1000]


@pytest.mark.parametrize(
    "header",
    [
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"last_delta": -1},
        {"last_delta": 3},  # of five records
    ],
    ids=str,
)
def test_offsets_and_counts_that_no_batch_can_have_are_refused(header):
    records = record(FRONT, NULL, EMPTY, EMPTY) * 5
    with pytest.raises(CorruptBatch, match="the batch header is corrupt"):
        batches_of(batch_of(records, 5, **header))


def test_a_batch_that_inflates_too_far_is_refused_with_its_place_and_the_setting():
    bomb = batch_of(record(FRONT, NULL, encode_varint(300_000), bytes(300_000), EMPTY), 1, codec=4, base_offset=41)
    fine = encode_batch([RecordData(42, 1, None, b"v")], base_offset=42)
    with pytest.raises(DecodeLimitExceeded) as caught:
        batches_of(bomb + fine, limits=DecodeLimits(batch_bytes=100_000))
    for part in ("orders-3", "offset 41", "zstd", "100,000 bytes", "decode.batch.max.bytes", "begins at offset 42"):
        assert part in str(caught.value)


def test_only_so_much_of_a_fetch_is_inflated_at_a_time():
    value = bytes(30_000)
    data = b"".join(
        batch_of(record(FRONT, NULL, encode_varint(len(value)), value, EMPTY), 1, codec=4, base_offset=offset)
        for offset in range(7)
    )
    found = batches_of(data, limits=DecodeLimits(inflated_bytes=70_000))
    assert [batch.column("offset").to_pylist() for batch in found] == [[0, 1], [2, 3], [4, 5], [6]]
    (whole,) = batches_of(data)
    assert whole.column("offset").to_pylist() == list(range(7))


@pytest.mark.parametrize("inflated_bytes", [1, 1000, 1 << 26])
def test_what_comes_before_a_batch_that_is_refused_is_given_first(inflated_bytes):
    fine = batch_of(record(FRONT, NULL, encode_varint(900), bytes(900), EMPTY), 1, codec=4)
    bomb = batch_of(record(FRONT, NULL, encode_varint(9000), bytes(9000), EMPTY), 1, codec=4, base_offset=1)
    segments = [Segment(topic="orders", partition=3, data=memoryview(fine + bomb), start=0)]
    batches = scan(segments).batches(limits=DecodeLimits(batch_bytes=1000, inflated_bytes=inflated_bytes))
    assert next(batches).column("offset").to_pylist() == [0]
    with pytest.raises(DecodeLimitExceeded, match="offset 1"):
        next(batches)


@pytest.mark.parametrize("codec", [0, 4])
def test_records_of_a_huge_batch_come_in_several_arrow_batches(codec):
    count = 6
    value = bytes(PART_BYTES // 2)
    payload = b"".join(
        record(b"\0\0", encode_varint(i), NULL, encode_varint(len(value)), value, EMPTY) for i in range(count)
    )
    other = batch_of(record(FRONT, NULL, EMPTY, EMPTY), 1, codec=codec, base_offset=count)
    found = batches_of(batch_of(payload, count, codec=codec) + other)
    assert len(found) >= 3
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(count + 1))


def test_a_record_with_more_headers_than_are_wanted_is_refused():
    bomb = batch_of(record(FRONT, NULL, EMPTY, encode_varint(2_000_000), bytes(4_000_000)), 1, codec=4, base_offset=9)
    with pytest.raises(DecodeLimitExceeded, match=r"orders-3.*offset 9 has 2,000,000 headers.*decode.record.max.head"):
        batches_of(bomb)


names = st.integers(0, 3).map(lambda size: "k" * size)
contents = st.none() | st.sampled_from([b"", b"a", b"b" * 70, b"c" * 200])
one_header = st.tuples(names, contents)
runs = st.lists(st.tuples(one_header, st.integers(1, 200)), max_size=6)


@given(st.lists(runs, min_size=1, max_size=4))
def test_many_headers_are_read_like_few_ones(shapes):
    records = [
        RecordData(offset, 1, None, b"v", [header for header, times in shape for _ in range(times)])
        for offset, shape in enumerate(shapes)
    ]
    found = [row for batch in batches_of(encode_batch(records)) for row in batch.column("headers").to_pylist()]
    assert [[(h["key"], h["value"]) for h in row] for row in found] == [list(r.headers) for r in records]


@given(runs.filter(bool), st.data())
def test_a_cut_in_many_headers_is_refused_wherever_it_is(shape, draw):
    headers = [header for header, times in shape for _ in range(times)] * 5
    whole = encode_batch([RecordData(0, 1, None, b"", headers)])[61:]
    body = whole[next(i for i in range(1, 6) if whole[i - 1] < 0x80) :]
    cut = body[: draw.draw(st.integers(6, len(body) - 1))]
    with pytest.raises(CorruptBatch, match="orders-3"):
        batches_of(batch_of(record(cut), 1))


def test_the_limits_are_settings_of_every_reader():
    chosen = wire_settings(
        {"decode.batch.max.bytes": "1000", "decode.max.bytes": 2000, "decode.record.max.headers": 3},
        bootstrap_servers="localhost:9092",
    )
    assert chosen.decode_limits == DecodeLimits(batch_bytes=1000, inflated_bytes=2000, record_headers=3)
    for name, value in (
        ("decode.batch.max.bytes", 2**30 + 1),
        ("decode.max.bytes", 0),
        ("decode.record.max.headers", "x"),
    ):
        with pytest.raises(ConfigError, match=f"{name}: found .*{value}"):
            wire_settings({name: value}, bootstrap_servers="localhost:9092")


def test_a_reader_says_where_a_topic_goes_beyond_its_limits(broker, settings):
    broker.add_topic("orders")
    broker.append("orders", 0, encode_batch([RecordData(0, 1, None, b"v")]))
    broker.append("orders", 0, batch_of(record(FRONT, NULL, encode_varint(9000), bytes(9000), EMPTY), 1, codec=4))
    broker.append("orders", 0, encode_batch([RecordData(0, 1, None, b"w")]))
    limited = settings | {"decode.batch.max.bytes": 5000}
    with pytest.raises(DecodeLimitExceeded, match="orders-0, the batch at offset 1"):
        read("orders", settings=limited).read_all()
    assert read("orders", settings=settings).read_all().num_rows == 3


def test_arrays_of_arrays_in_one_value_are_left_to_the_row_decoder():
    """By rounds each of these items would cost some 50 µs: ten seconds."""
    serde = Avro({"type": "array", "items": {"type": "array", "items": "int"}})
    decoder = decoder_for(serde)
    value = [[7] * 250] * 250
    calls = 0

    def counted(*arguments):
        nonlocal calls
        calls += 1
        return original(*arguments)

    import ottla.columnar.values.avro as avro

    original, avro._varint = avro._varint, counted
    try:
        column, errors = decoder.decode(pa.array([serde.serialize(value, SerdeContext("orders"))]))
    finally:
        avro._varint = original
    assert column.to_pylist() == [value]
    assert errors.null_count == 1
    assert calls < 100


@pytest.mark.complete
def test_mutated_bytes_break_no_array_and_no_memory():
    found = hostile_bytes.run(inputs=6_000, seed=1, timeout_s=110)
    for kind in ("records", "avro", "json", "flat json", "protobuf"):
        assert 0 < found[kind]["refused"] < found[kind]["inputs"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mutated_inputs_break_no_array_and_no_memory():
    found = hostile_bytes.run(inputs=1_200_000, seed=2026, timeout_s=3500)
    print(found)  # shown by -rP
    assert sum(kind["inputs"] for kind in found.values()) >= 1_000_000
