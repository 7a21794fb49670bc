"""Fetched bytes to Arrow: what the wire codec reads record by record, the columnar decoder reads as columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar.arrays.schema import ALL_COLUMNS, arrow_schema
from ottla.columnar.arrays.varints import BadRow, read_varints, varint_widths, write_varints
from ottla.columnar.reading import decode, walk
from ottla.columnar.reading.decode import scan
from ottla.columnar.reading.walk import record_bodies
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import Segment
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import BATCH_OVERHEAD, CompressionType, RecordData, decode_batch, encode_batch, iter_batches
from ottla_wire.records.control import AbortedTransaction, ControlType, encode_end_txn_marker

np = pytest.importorskip("numpy")

TEN_BYTES = 10
raw = st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=40)), max_size=4)
contents = st.tuples(st.none() | raw, st.none() | raw, headers, st.integers(-1, 2**45))
batch_shapes = st.tuples(
    st.lists(st.tuples(contents, st.integers(0, 5)), min_size=1, max_size=40),  # the number: a gap in offsets before it
    st.sampled_from(CompressionType),
    st.sampled_from([0, 1]),
    st.integers(0, 3),  # offsets compacted away behind the last record
)
logs = st.lists(batch_shapes, min_size=1, max_size=5)


def build_log(shapes, *, first_offset=0):
    """(bytes, records) of a log with these batches."""
    data = b""
    records = []
    offset = first_offset
    for rows, codec, timestamp_type, compacted in shapes:
        base = offset
        batch = []
        for (key, value, record_headers, timestamp), gap in rows:
            offset += gap
            batch.append(RecordData(offset, timestamp, key, value, record_headers))
            offset += 1
        offset += compacted
        encoded = encode_batch(
            batch, base_offset=base, compression=codec, timestamp_type=timestamp_type, last_offset=offset - 1
        )
        records += decode_batch(encoded)
        data += encoded
    return data, records, offset


def segment(data, **changes):
    return Segment(**{"topic": "orders", "partition": 3, "data": memoryview(data), "start": 0} | changes)


def decoded(found, columns=ALL_COLUMNS) -> pa.RecordBatch:
    """All that a scan holds as one record batch."""
    table = pa.Table.from_batches(found.batches(columns), schema=arrow_schema(columns)).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def as_records(batch: pa.RecordBatch) -> list[RecordData]:
    micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        RecordData(
            row["offset"], stamp // 1000, row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]]
        )
        for row, stamp in zip(batch.drop_columns(["timestamp"]).to_pylist(), micros, strict=True)
    ]


def plain(records):
    return [RecordData(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records]


@given(logs)
def test_columns_hold_what_the_record_codec_reads(shapes):
    data, records, end = build_log(shapes)
    found = scan([segment(data)])
    assert as_records(decoded(found)) == plain(records)
    assert found.next_offsets == (end,)


@given(logs, st.data())
def test_a_range_has_exactly_the_offsets_between_its_ends(shapes, draw):
    data, records, end = build_log(shapes, first_offset=7)
    start = draw.draw(st.integers(0, end + 2))
    stop = draw.draw(st.integers(start, end + 2))
    found = scan([segment(data, start=start, end=stop)])
    assert as_records(decoded(found)) == plain(r for r in records if start <= r.offset < stop)
    assert start <= found.next_offsets[0] <= max(stop, start)


@given(logs, st.data())
def test_a_cut_off_tail_is_left_for_the_next_fetch(shapes, draw):
    data, records, _ = build_log(shapes)
    cut = draw.draw(st.integers(0, len(data)))
    whole = [h for p, h in iter_batches(data) if p + h.size_in_bytes <= cut]
    next_offset = whole[-1].next_offset if whole else 0
    found = scan([segment(data[:cut])])
    assert found.next_offsets == (next_offset,)
    assert as_records(decoded(found)) == plain(r for r in records if r.offset < next_offset)


@given(logs, logs)
def test_partitions_decoded_together_are_as_if_decoded_alone(first, second):
    one, one_records, one_end = build_log(first)
    two, two_records, two_end = build_log(second, first_offset=100)
    frame = bytearray(b"front" + one + b"between" + two)
    view = memoryview(frame)
    segments = [
        segment(view[5 : 5 + len(one)]),
        segment(view[12 + len(one) :], topic="returns", partition=1, start=100),
    ]
    found = scan(segments)
    batch = decoded(found)
    assert found.next_offsets == (one_end, two_end)
    assert as_records(batch) == plain(one_records + two_records)
    assert batch.column("topic").to_pylist() == ["orders"] * len(one_records) + ["returns"] * len(two_records)
    assert batch.column("partition").to_pylist() == [3] * len(one_records) + [1] * len(two_records)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), min_size=1, max_size=8))
def test_runs_of_equal_lengths_are_walked_like_any_others(runs):
    sizes = [size for size, count in runs for _ in range(count)]
    records = [RecordData(i, 5, None, bytes(size)) for i, size in enumerate(sizes)]
    batch = decoded(scan([segment(encode_batch(records))]), ["offset", "value"])
    assert [len(v) for v in batch.column("value").to_pylist()] == sizes


@given(
    st.lists(
        st.one_of(st.integers(64, 300), st.integers(64, 300), st.integers(0, 63), st.integers(8_000, 9_000)),
        min_size=60,
        max_size=200,
    ),
    st.randoms(use_true_random=False),
)
def test_lengths_that_differ_are_walked_to_the_same_records(lengths, random):
    """Long stretches of lengths of two bytes, and what interrupts them."""
    repeated = [length for length in lengths for _ in range(1 if random.random() < 0.9 else 20)]
    data = b"front" + b"".join(varint(2 * length) + bytes(length) for length in repeated) + b"behind"
    bodies, position = [], 5
    for length in repeated:
        bodies.append(position + len(varint(2 * length)))
        position = bodies[-1] + length
    found = record_bodies(np.frombuffer(data, np.uint8), 5, position, len(repeated))
    assert found.tolist() == bodies


@given(st.lists(st.integers(64, 300), min_size=60, max_size=100), st.data())
def test_a_walk_over_lengths_that_lie_ends_at_the_same_record(lengths, draw):
    """Whether it says how far the records were right does not depend on the way they were walked."""
    data = bytearray(b"".join(varint(2 * length) + bytes([0x81]) * length for length in lengths))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    array = np.frombuffer(bytes(data), np.uint8)

    def walked():
        try:
            return record_bodies(array, 0, len(array), len(lengths)).tolist()
        except BadRow as error:
            return error.row, str(error)

    quick = walked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "STRETCH_AFTER", 1 << 30)
        assert quick == walked()


@given(st.data())
def test_bytes_that_look_like_the_starts_of_records_are_taken_for_none(draw):
    """Bodies are made of what marks are made of: lengths of two bytes, and the zero behind them."""
    pieces = st.sampled_from([b"\0", b"\x82\1", b"\xa0\1\0", b"\x80\1\0", b"\x81\1\0", b"\xff\xff\0", b"a" * 40])
    body = st.lists(pieces, min_size=2, max_size=30).map(lambda found: (b"\0" + b"".join(found)).ljust(64, b"a"))
    bodies = draw.draw(st.lists(body, min_size=60, max_size=100))
    data = b"".join(varint(2 * len(body)) + body for body in bodies)
    starts = np.cumsum([0] + [2 + len(body) for body in bodies])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "MARKS_BYTES", draw.draw(st.sampled_from([300, 1_000, 1 << 18])))
        found = record_bodies(np.frombuffer(data, np.uint8), 0, len(data), len(bodies))
    assert found.tolist() == (starts[:-1] + 2).tolist()


@pytest.mark.parametrize("front", [b"", b"\0\0\0\0\7"], ids=["plain", "behind a schema id"])
def test_records_of_many_lengths_are_found_in_one_look(front):
    values = [front + b'{"number": %d}' % (10 ** (n % 40 + 64)) for n in range(2_000)]
    data = encode_batch([RecordData(n, n * 50, None, value) for n, value in enumerate(values)])
    payload = np.frombuffer(data, np.uint8)[BATCH_OVERHEAD:]
    first = record_bodies(payload, 0, len(payload), 2_000)
    starts = walk._marks(payload, 0, len(payload), 2_000)
    assert starts is not None
    assert (starts[:-1] + 2).tolist() == first.tolist()
    assert starts[-1] == len(payload)
    assert len(walk._marks(payload, 0, len(payload), 7)) == 8


def varint(number):
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_varint_columns_read_back_what_they_wrote(numbers):
    values = np.array(numbers, dtype=np.int64)
    edges = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(varint_widths(values), out=edges[1:])
    out = np.zeros(int(edges[-1]), dtype=np.uint8)
    assert (write_varints(out, edges[:-1], values) == edges[1:]).all()
    found, after = read_varints(out, edges[:-1], edges[1:])
    assert found.tolist() == numbers
    assert after.tolist() == edges[1:].tolist()


def test_a_number_of_one_byte_at_the_end_of_the_buffer_is_read_beside_longer_ones():
    values = np.array([64, -8_193, 1 << 40, -64], dtype=np.int64)
    ends = np.cumsum(varint_widths(values))
    starts = ends - varint_widths(values)
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    write_varints(out, starts, values)
    found, after = read_varints(out, starts, ends)
    assert found.tolist() == values.tolist()
    assert after.tolist() == ends.tolist()
    for row in range(3):  # all but the last take more than one byte
        cut = ends.copy()
        cut[row] -= 1
        with pytest.raises(BadRow) as caught:
            read_varints(out, starts, cut)
        assert caught.value.row == row


@given(st.integers(0, 300), st.integers(1, 300), st.integers(20, 200), st.integers(0, 2))
def test_keys_and_values_of_one_length_are_those_that_were_written(key_bytes, value_bytes, count, with_headers):
    rows = [
        RecordData(
            offset,
            1_700_000_000_000 + offset,
            bytes([offset % 251]) * key_bytes,
            bytes([offset % 241]) * value_bytes,
            [("h", b"1")] if offset < with_headers or (with_headers and offset == count - 1) else [],
        )
        for offset in range(count)
    ]
    batch = decoded(scan([segment(encode_batch(rows, base_offset=0))]))
    assert plain(as_records(batch)) == plain(rows)
    batch.validate(full=True)


@given(logs, st.data())
def test_bytes_changed_on_the_way_fail_the_crc(shapes, draw):
    data, _, _ = build_log(shapes)
    positions = [p + o for p, h in iter_batches(data) for o in range(17, h.size_in_bytes)]
    position = draw.draw(st.sampled_from(positions))
    changed = bytearray(data)
    changed[position] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch, match="orders-3"):
        scan([segment(changed)])


@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_leave_the_buffer(data):
    try:
        found = scan([segment(data)], check_crcs=False)
        decoded(found)
    except CorruptBatch:
        return
    assert found.next_offsets[0] >= 0


@given(logs, st.data())
def test_damage_that_no_crc_catches_is_an_error_or_other_records_but_never_a_crash(shapes, draw):
    data, _, _ = build_log(shapes)
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        batch = decoded(scan([segment(changed)], check_crcs=False))
    except (CorruptBatch, DecodeLimitExceeded):
        return
    batch.validate(full=True)


few_logs = st.lists(batch_shapes.map(lambda shape: (shape[0][:8], *shape[1:])), min_size=1, max_size=3)


@given(few_logs, st.data())
def test_a_few_records_are_decoded_one_by_one_to_what_columns_give(shapes, draw):
    data, _, end = build_log(shapes, first_offset=7)
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 3), label="damage")):
        changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    start = draw.draw(st.integers(0, end))
    limits = DecodeLimits(record_headers=draw.draw(st.integers(0, 4)))
    found = segment(changed, start=start, end=draw.draw(st.none() | st.integers(start, end + 2)))

    def outcome():
        taken = []
        try:
            for batch in scan([found], check_crcs=False).batches(limits=limits):
                batch.validate(full=True)
                taken.append(batch)
        except (CorruptBatch, DecodeLimitExceeded) as error:
            return taken, f"{type(error).__name__}: {error}"
        return taken, None

    one_by_one = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "small_group_to_arrow", lambda *group: None)
        in_columns = outcome()
    assert one_by_one == in_columns


def test_a_single_record_is_decoded_without_columns_of_numbers(monkeypatch):
    data = encode_batch([RecordData(0, 1, b"k", b"v", [("trace", b"1"), ("none", None)])])
    monkeypatch.setattr(decode, "_parts", None)
    (row,) = decoded(scan([segment(data)])).to_pylist()
    assert (row["key"], row["value"]) == (b"k", b"v")
    assert row["headers"] == [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]


def test_compression_is_undone_for_all_codecs_in_one_call():
    data = b"".join(
        encode_batch([RecordData(codec, 1, b"k", b"v" * 100)], base_offset=codec, compression=codec)
        for codec in CompressionType
    )
    batch = decoded(scan([segment(data)]), ["offset", "value"])
    assert batch.to_pydict() == {"offset": [0, 1, 2, 3, 4], "value": [b"v" * 100] * 5}


def test_only_the_wanted_columns_are_made_in_the_wanted_order():
    data = encode_batch([RecordData(0, 1, b"k", b"v")])
    batch = decoded(scan([segment(data)]), ["offset", "key"])
    assert batch.schema == arrow_schema(["offset", "key"])
    assert batch.to_pylist() == [{"offset": 0, "key": b"k"}]


def test_nothing_fetched_is_an_empty_batch_and_the_same_position():
    found = scan([segment(b"", start=9)])
    assert found.next_offsets == (9,)
    assert decoded(found).num_rows == 0


def test_an_old_message_format_is_named():
    old = bytearray(encode_batch([RecordData(0, 1, None, b"v")]))
    old[16] = 1
    with pytest.raises(CorruptBatch, match="message format 1"):
        scan([segment(old)])


def transactional(offset, producer_id, value):
    return encode_batch(
        [RecordData(offset, 1, None, value)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset, producer_id, control_type):
    key, value = encode_end_txn_marker(control_type, 0)
    return encode_batch(
        [RecordData(offset, 1, key, value)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


TWO_PRODUCERS = b"".join(
    [
        transactional(0, 1, b"aborted"),
        transactional(1, 2, b"committed"),
        encode_batch([RecordData(2, 1, None, b"plain")], base_offset=2),
        transactional(3, 1, b"aborted too"),
        marker(4, 1, ControlType.ABORT),
        transactional(5, 1, b"the next transaction"),
        marker(6, 2, ControlType.COMMIT),
        marker(7, 1, ControlType.COMMIT),
    ]
)


def test_a_committed_reader_does_not_see_aborted_transactions():
    found = scan([segment(TWO_PRODUCERS, aborted=[AbortedTransaction(1, 0)])])
    assert decoded(found, ["value"]).column(0).to_pylist() == [b"committed", b"plain", b"the next transaction"]
    assert found.next_offsets == (8,)


def test_an_uncommitted_reader_sees_all_but_control_records():
    found = scan([segment(TWO_PRODUCERS, aborted=[AbortedTransaction(1, 0)])], isolation=Isolation.READ_UNCOMMITTED)
    values = decoded(found, ["value"]).column(0).to_pylist()
    assert values == [b"aborted", b"committed", b"plain", b"aborted too", b"the next transaction"]


def test_a_range_whose_tail_is_control_records_ends_at_its_end():
    found = scan([segment(TWO_PRODUCERS, start=6, end=8)])
    assert found.next_offsets == (8,)
    assert list(found.batches()) == []


def test_a_header_name_that_is_not_text_is_shown_escaped():
    encoded = bytearray(encode_batch([RecordData(0, 1, None, b"v", [("ab", b"1")])]))
    position = encoded.index(b"ab")
    encoded[position] = 0xFF
    batch = decoded(scan([segment(encoded)], check_crcs=False), ["headers"])
    assert batch.column(0).to_pylist() == [[{"key": "\\xffb", "value": b"1"}]]


def test_a_timestamp_far_ahead_stays_far_ahead():
    batch = decoded(scan([segment(encode_batch([RecordData(0, 2**62, None, b"v")]))]), ["timestamp"])
    assert batch.column(0).cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]
