from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.serdes.wire_format import HEADER_BYTES, NotFramed, header, message_indexes, message_path, schema_id_of


@given(st.integers(0, 2**32 - 1), st.binary())
def test_the_schema_id_in_front_of_any_payload_is_found_again(schema_id: int, payload: bytes) -> None:
    data = header(schema_id) + payload
    assert schema_id_of(data) == schema_id
    assert data[HEADER_BYTES:] == payload


def test_the_header_is_a_zero_byte_and_four_bytes_big_endian() -> None:
    assert header(258) == b"\x00\x00\x00\x01\x02"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "0 bytes are too few"),
        (b"\0\0\0\1", "4 bytes are too few"),
        (b"\1\0\0\0\1x", "first byte is 0x01"),
        (b'{"a": 1}', "looks like JSON"),
    ],
)
def test_bytes_without_a_schema_id_say_what_they_begin_with(data: bytes, wanted: str) -> None:
    with pytest.raises(NotFramed, match=wanted):
        schema_id_of(data)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=5), st.binary())
def test_a_message_path_comes_back_and_the_payload_behind_it(indexes: list[int], payload: bytes) -> None:
    data = header(1) + message_path(indexes) + payload
    found, position = message_indexes(data, HEADER_BYTES)
    assert (found, data[position:]) == (indexes, payload)


def test_the_first_message_of_a_file_is_a_single_zero() -> None:
    assert message_path([0]) == b"\0"
    assert message_path([1, 0]) == bytes([4, 2, 0])  # a count of two, then the indexes, zigzag


@given(st.binary(max_size=12))
def test_foreign_bytes_where_a_path_should_be_never_loop_or_raise_anything_else(data: bytes) -> None:
    try:
        _, position = message_indexes(data, 0)
    except NotFramed:
        return
    assert 0 < position <= len(data)


@pytest.mark.parametrize("opening", [b"", b"\2", b"\x80\x0f" + b"\2" * 900])
def test_a_number_that_does_not_end_is_refused_after_five_bytes(opening: bytes) -> None:
    began = time.process_time()
    for _ in range(1_000):
        with pytest.raises(NotFramed, match="more than 5 bytes"):
            message_indexes(opening + b"\xff" * 1_000_000, 0)
    assert time.process_time() - began < 10, "1,000 of them, where one took 37 s"
