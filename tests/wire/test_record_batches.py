"""Record batches against kafka-python's and aiokafka's record modules, and against themselves."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import ProtocolError, SchemaError
from ottla_wire.records import (
    BATCH_OVERHEAD,
    CompressionType,
    RecordData,
    TimestampType,
    check_crc,
    decode_batch,
    encode_batch,
    iter_batches,
    iter_headers,
    parse_header,
    patch_batch,
    patch_log_append_time,
)
from ottla_wire.records.control import ControlType, decode_control_type, decode_end_txn_marker, encode_end_txn_marker

# Importing kafka-python warns of deprecated functions; this way of importing it does not turn that into an error.
peer = pytest.importorskip("kafka.record.default_records")

# The others need libraries that kafka-python does not bring; aiokafka has all.
PEER_CODECS = (CompressionType.NONE, CompressionType.GZIP)

# A batch of three records as aiokafka writes it, then with base offset 5, leader epoch 2, keys k0.., create time.
GOLDEN = bytes.fromhex(
    "0000000000000005" "00000053" "00000002" "02" "be04e625" "0000" "00000002"
    "0000018bcfe56800" "0000018bcfe56814" "ffffffffffffffff" "ffff" "ffffffff" "00000003"
    "14" "00" "00" "00" "046b30" "047630" "00" "14" "00" "14" "02" "046b31" "047631" "00"
    "16" "00" "28" "04" "01" "047632" "02" "0268" "00"
)  # fmt: skip

names = st.text(max_size=5)
payloads = st.none() | st.binary(max_size=70)
contents = st.lists(
    st.tuples(payloads, payloads, st.lists(st.tuples(names, payloads), max_size=3), st.integers(0, 100_000)), min_size=1
)
codecs = st.sampled_from(CompressionType)


def records_of(contents, base_offset=0):
    return [
        RecordData(base_offset + index, 1_700_000_000_000 + late, key, value, headers)
        for index, (key, value, headers, late) in enumerate(contents)
    ]


@given(contents=contents, codec=codecs, base_offset=st.integers(0, 2**40))
def test_a_batch_survives_a_round_trip(contents, codec, base_offset):
    records = records_of(contents, base_offset)
    batch = encode_batch(records, base_offset=base_offset, compression=codec, leader_epoch=3)
    header = parse_header(batch)
    assert decode_batch(batch) == records
    assert check_crc(batch, 0, header)
    assert header.size_in_bytes == len(batch)
    assert (header.base_offset, header.last_offset) == (base_offset, records[-1].offset)
    assert header.record_count == len(records)
    assert header.compression == codec
    assert header.max_timestamp == max(record.timestamp_ms for record in records)


@given(contents=contents, codec=codecs)
def test_the_clients_read_what_we_write(contents, codec):
    records = records_of(contents)
    batch = encode_batch(records, compression=codec)
    readers = [AioBatch] if codec not in PEER_CODECS else [AioBatch, peer.DefaultRecordBatch]
    for reader in (of(batch) for of in readers):
        assert reader.validate_crc()
        found = [RecordData(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in reader]
        assert found == records


@given(contents=contents, codec=codecs)
def test_we_read_what_the_clients_write(contents, codec):
    records = records_of(contents)
    options = {
        "magic": 2,
        "compression_type": int(codec),
        "is_transactional": True,
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 40,
        "batch_size": 1 << 20,
    }
    builders = [AioBuilder] if codec not in PEER_CODECS else [AioBuilder, peer.DefaultRecordBatchBuilder]
    for builder in (of(**options) for of in builders):
        for record in records:
            builder.append(
                record.offset, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=record.headers
            )
        batch = bytes(builder.build())
        header = parse_header(batch)
        assert check_crc(batch, 0, header)
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
        assert header.last_sequence == 40 + len(records) - 1
        assert decode_batch(batch) == records


def test_a_batch_has_the_golden_bytes():
    records = [
        RecordData(5, 1_700_000_000_000, b"k0", b"v0", []),
        RecordData(6, 1_700_000_000_010, b"k1", b"v1", []),
        RecordData(7, 1_700_000_000_020, None, b"v2", [("h", b"")]),
    ]
    assert encode_batch(records, base_offset=5, leader_epoch=2).hex() == GOLDEN.hex()
    assert decode_batch(GOLDEN) == records


def test_a_leader_patches_offset_and_epoch_without_touching_the_crc():
    buffer = bytearray(b"before" + encode_batch([RecordData(0, 1, None, b"v")]))
    patch_batch(memoryview(buffer), 6, 1_000, 9)
    header = parse_header(buffer, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (1_000, 9)
    assert check_crc(buffer, 6, header)
    assert decode_batch(buffer, 6) == [RecordData(1_000, 1, None, b"v", [])]


def test_a_broker_stamps_a_batch_with_its_own_time():
    buffer = bytearray(encode_batch([RecordData(0, 1, None, b"a"), RecordData(1, 2, None, b"b")]))
    patch_log_append_time(buffer, 0, 5_000)
    header = parse_header(buffer)
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert check_crc(buffer, 0, header)
    assert [record.timestamp_ms for record in decode_batch(buffer)] == [5_000, 5_000]


def test_any_changed_byte_behind_the_crc_is_noticed():
    batch = encode_batch([RecordData(0, 1, b"k", b"v")])
    header = parse_header(batch)
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert not check_crc(damaged, 0, header)
    assert not check_crc(batch[:-1], 0, header)


def test_headers_are_walked_up_to_a_partial_tail():
    first = encode_batch([RecordData(0, 1, None, b"a")])
    second = encode_batch([RecordData(1, 1, None, b"bb"), RecordData(2, 1, None, b"c")], base_offset=1)
    third = encode_batch([RecordData(3, 1, None, b"d")], base_offset=3)
    whole = first + second
    for tail in range(len(third)):
        buffer = memoryview(whole + third[:tail])
        assert [header.base_offset for header in iter_headers(buffer)] == [0, 1]
        assert [position for position, _ in iter_batches(buffer)] == [0, len(first)]
    assert [header.next_offset for header in iter_headers(whole + third)] == [1, 3, 4]


@pytest.mark.parametrize("length", [-1, 0, BATCH_OVERHEAD - 13, -(1 << 31)])
def test_a_length_that_no_batch_can_have_is_refused(length):
    batch = bytearray(encode_batch([RecordData(0, 1, None, b"a")]))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match="a header alone has 61"):
        list(iter_headers(batch))
    with pytest.raises(ProtocolError):
        decode_batch(batch)
    assert not check_crc(batch, 0, parse_header(batch))


def test_compaction_keeps_the_last_offset_of_a_batch_and_its_horizon():
    kept = [RecordData(12, 100, b"k", None)]
    batch = encode_batch(kept, base_offset=10, last_offset=19, delete_horizon_ms=7_777, max_timestamp_ms=500)
    header = parse_header(batch)
    assert (header.last_offset, header.record_count, header.max_timestamp) == (19, 1, 500)
    assert header.delete_horizon_ms == 7_777
    assert decode_batch(batch) == [RecordData(12, 100, b"k", None, [])]
    empty = encode_batch([], base_offset=10, last_offset=19, producer_id=3, base_sequence=5)
    assert parse_header(empty).next_offset == 20
    assert decode_batch(empty) == []


def test_offsets_must_ascend_from_the_base():
    for offsets, base in (([3, 3], 0), ([4, 3], 0), ([1], 2)):
        with pytest.raises(SchemaError, match="ascend"):
            encode_batch([RecordData(offset, 1, None, None) for offset in offsets], base_offset=base)
    with pytest.raises(SchemaError, match="needs last_offset"):
        encode_batch([])


def test_sequences_wrap_after_the_largest_int32():
    records = [RecordData(index, 1, None, b"") for index in range(3)]
    assert parse_header(encode_batch(records, base_sequence=(1 << 31) - 2)).last_sequence == 0
    assert parse_header(encode_batch(records)).last_sequence == -1


def test_a_transaction_ends_with_a_marker():
    key, value = encode_end_txn_marker(ControlType.COMMIT, 3)
    assert (key.hex(), value.hex()) == ("00000001", "000000000003")
    batch = encode_batch(
        [RecordData(9, 1, key, value)], base_offset=9, producer_id=1, producer_epoch=0, is_control=True,
        is_transactional=True,
    )  # fmt: skip
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    marker = decode_batch(batch)[0]
    assert decode_end_txn_marker(marker.key, marker.value) == (ControlType.COMMIT, 3)
    assert decode_control_type(b"\0\0\0\x63") is None
    for key, value in ((None, b""), (b"\0\0", b""), (b"\0\0\0\1", b"\0"), (b"\0\0\0\2", bytes(6))):
        with pytest.raises(ProtocolError):
            decode_end_txn_marker(key, value)


@given(contents=contents, data=st.data())
def test_damaged_batches_decode_or_are_refused(contents, data):
    codec = data.draw(codecs)
    batch = bytearray(encode_batch(records_of(contents), compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(batch)))
    for damaged in (bytes(batch), bytes(batch[:cut])):
        try:
            decode_batch(damaged, max_size=1 << 20)
        except ProtocolError:
            continue


def test_a_batch_cannot_claim_more_records_than_its_bytes_can_hold():
    batch = bytearray(encode_batch([RecordData(0, 1, None, b"a")]))
    batch[57:61] = (1 << 30).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="records cannot fit"):
        decode_batch(batch)


def test_bytes_behind_the_last_record_are_refused():
    batch = bytearray(encode_batch([RecordData(0, 1, None, b"a"), RecordData(1, 1, None, b"b")]))
    batch[57:61] = (1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="left behind 1 records"):
        decode_batch(batch)


def test_old_message_formats_are_refused():
    batch = bytearray(encode_batch([RecordData(0, 1, None, b"a")]))
    batch[16] = 1
    with pytest.raises(ProtocolError, match="magic 1, wanted 2"):
        decode_batch(batch)


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
def test_header_keys_that_are_not_utf8_keep_their_bytes(keys: list[bytes]) -> None:
    headers = [(str(key, "utf-8", "surrogateescape"), key) for key in keys]
    batch = encode_batch([RecordData(0, 0, None, None, headers)])
    (record,) = decode_batch(batch)
    assert record.headers == headers
    assert encode_batch([record]) == batch
    assert all(key in batch for key in keys)
