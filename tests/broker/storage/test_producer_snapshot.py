from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.storage.producer_snapshot import (
    CorruptSnapshotError,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)

ENTRY = SnapshotEntry(
    producer_id=7,
    producer_epoch=1,
    last_sequence=9,
    last_offset=109,
    offset_delta=4,
    timestamp_ms=1_700_000_000_000,
    coordinator_epoch=-1,
    current_transaction_first_offset=-1,
)


def test_the_bytes_are_those_of_kafkas_producer_snapshot_version_1() -> None:
    assert encode_snapshot([ENTRY]) == bytes.fromhex(
        "0001 ee41466d 00000001 0000000000000007 0001 00000009 000000000000006d 00000004"
        "0000018bcfe56800 ffffffff ffffffffffffffff"
    )
    assert encode_snapshot([]) == bytes.fromhex("0001 48674bc7 00000000")


entries = st.builds(
    SnapshotEntry,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
)


@given(st.lists(entries, max_size=20))
def test_what_is_saved_is_read_back(saved: list[SnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(saved), path="x") == saved


@given(position=st.integers(0, 55), flip=st.integers(1, 255))
def test_a_changed_byte_is_noticed(position: int, flip: int) -> None:
    data = bytearray(encode_snapshot([ENTRY]))
    data[position] ^= flip
    with pytest.raises(CorruptSnapshotError, match=r"^x: "):
        decode_snapshot(bytes(data), path="x")


@given(st.integers(0, 55))
def test_a_torn_snapshot_is_noticed(size: int) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(encode_snapshot([ENTRY])[:size], path="x")
