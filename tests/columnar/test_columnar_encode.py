"""Arrow to record batches: what the columnar encoder writes, the wire codec reads back."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar.arrays.schema import HEADERS
from ottla.columnar.writing.encode import plan_batches
from ottla.columnar.writing.partitioner import murmur2, partitions_for_keys
from ottla.errors import InputError
from ottla.wire_client.producing.outgoing_batch import finish_batch
from ottla_wire.records import BATCH_OVERHEAD, CompressionType, check_crc, decode_batch, parse_header

np = pytest.importorskip("numpy")

raw = st.none() | st.binary(max_size=300)
header = st.fixed_dictionaries({"key": st.text(max_size=12), "value": st.none() | st.binary(max_size=40)})
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": raw,
            "value": raw,
            "headers": st.none() | st.lists(header, max_size=4),
            "timestamp": st.integers(0, 2**50),
            "partition": st.integers(0, 3),
        }
    ),
    min_size=1,
    max_size=60,
)


def planned(given_rows, *, max_batch_bytes=1 << 20):
    ordered = sorted(given_rows, key=lambda row: row["partition"])
    return ordered, plan_batches(
        key=pa.array([r["key"] for r in ordered], pa.binary()),
        value=pa.array([r["value"] for r in ordered], pa.binary()),
        headers=pa.array([r["headers"] for r in ordered], HEADERS),
        timestamps_ms=np.array([r["timestamp"] for r in ordered], dtype=np.int64),
        partitions=np.array([r["partition"] for r in ordered], dtype=np.int32),
        max_batch_bytes=max_batch_bytes,
    )


@given(rows, st.sampled_from(CompressionType), st.integers(200, 5000))
def test_the_record_codec_reads_every_batch_back(given_rows, codec, max_batch_bytes):
    ordered, batches = planned(given_rows, max_batch_bytes=max_batch_bytes)
    read = []
    for batch in batches:
        data = finish_batch(batch, compression=codec, producer_id=9, producer_epoch=2, base_sequence=batch.first_row)
        head = parse_header(data)
        assert check_crc(data, 0, head)
        assert head.size_in_bytes == len(data)
        assert head.record_count == head.last_offset_delta + 1 == batch.row_count
        assert (head.producer_id, head.producer_epoch, head.base_sequence) == (9, 2, batch.first_row)
        records = decode_batch(data)
        assert head.max_timestamp == max(r.timestamp_ms for r in records)
        assert [r.offset for r in records] == list(range(len(records)))
        read += [(batch.partition, r) for r in records]
    assert [p for p, _ in read] == [row["partition"] for row in ordered]
    for (_, record), row in zip(read, ordered, strict=True):
        assert (record.key, record.value, record.timestamp_ms) == (row["key"], row["value"], row["timestamp"])
        assert list(record.headers) == [(h["key"], h["value"]) for h in row["headers"] or ()]


@given(rows, st.integers(200, 5000))
def test_a_batch_is_within_its_budget_unless_it_is_one_record(given_rows, max_batch_bytes):
    _, batches = planned(given_rows, max_batch_bytes=max_batch_bytes)
    for batch in batches:
        assert batch.row_count == 1 or len(batch.payload) + BATCH_OVERHEAD <= max_batch_bytes


def test_slices_of_a_table_are_encoded_as_themselves():
    table = pa.record_batch({"key": ["a", "bb", "ccc", None], "value": ["1", "2", "3", "4"]}).slice(1, 3)
    (batch,) = plan_batches(
        key=table.column("key").cast(pa.binary()),
        value=table.column("value").cast(pa.binary()),
        headers=None,
        timestamps_ms=np.array([5, 5, 5]),
        partitions=np.zeros(3, dtype=np.int32),
        max_batch_bytes=1000,
    )
    records = decode_batch(finish_batch(batch))
    assert [(r.key, r.value) for r in records] == [(b"bb", b"2"), (b"ccc", b"3"), (None, b"4")]


def test_a_header_without_a_name_is_refused():
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(InputError, match="header has no key"):
        plan_batches(
            key=None,
            value=pa.array([b"v"]),
            headers=headers,
            timestamps_ms=np.array([1]),
            partitions=np.zeros(1, dtype=np.int32),
            max_batch_bytes=1000,
        )


def kafkas_murmur2(data: bytes) -> int:
    """One key at a time, as the Java client's Utils.murmur2 defines it."""
    mask = 0xFFFFFFFF
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) // 4 * 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(st.lists(st.binary(max_size=40), max_size=40))
def test_keys_hash_as_in_the_java_client(keys):
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [kafkas_murmur2(key) for key in keys]


def test_known_keys_land_where_java_puts_them():
    # From the Java client's own test of its hash.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    found = murmur2(pa.array(list(known), pa.binary())).astype(np.int32).tolist()
    assert found == list(known.values())


def test_rows_without_a_key_go_to_all_partitions_in_long_runs():
    partitions = partitions_for_keys(None, rows=1000, partition_count=4, first=2).tolist()
    assert sorted(set(partitions)) == [0, 1, 2, 3]
    assert sum(a != b for a, b in itertools.pairwise(partitions)) == 3
    assert partitions[0] == 2


@given(st.lists(st.none() | st.binary(max_size=8), min_size=1, max_size=50), st.integers(1, 12))
def test_null_keys_do_not_disturb_the_others(keys, count):
    partitions = partitions_for_keys(pa.array(keys, pa.binary()), rows=len(keys), partition_count=count)
    assert ((partitions >= 0) & (partitions < count)).all()
    for key, partition in zip(keys, partitions.tolist(), strict=True):
        assert key is None or partition == (kafkas_murmur2(key) & 0x7FFFFFFF) % count
