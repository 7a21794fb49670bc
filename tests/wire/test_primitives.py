"""Varints and the text of uuids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import ZERO_UUID, ProtocolError, SchemaError
from ottla_wire.protocol.primitives import (
    decode_uvarint,
    decode_varint,
    encode_uvarint,
    encode_varint,
    uuid_from_text,
    uuid_text,
)


@given(value=st.integers(0, 2**32 - 1))
def test_unsigned_varints_survive_a_round_trip(value):
    encoded = encode_uvarint(value)
    assert decode_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_signed_varints_survive_a_round_trip(value):
    encoded = encode_varint(value)
    assert decode_varint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")]
)
def test_signed_varints_are_zigzag(value, expected):
    assert encode_varint(value).hex() == expected


@pytest.mark.parametrize("data", ["", "80", "ffffffff", "ffffffffff0f", "ffffffff1f", "8080808080"])
def test_an_unsigned_varint_that_is_cut_or_too_long_is_refused(data):
    with pytest.raises(ProtocolError):
        decode_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["", "80", "ff" * 10, "ff" * 9 + "02"])
def test_a_signed_varint_that_is_cut_or_too_long_is_refused(data):
    with pytest.raises(ProtocolError):
        decode_varint(bytes.fromhex(data), 0)


def test_an_unsigned_varint_has_no_negative_values():
    with pytest.raises(SchemaError):
        encode_uvarint(-1)


def test_a_uuid_is_printed_as_kafka_prints_it():
    assert uuid_text(ZERO_UUID) == "A" * 22
    raw = bytes(range(240, 256))
    assert uuid_text(raw) == "8PHy8_T19vf4-fr7_P3-_w"
    assert uuid_from_text(uuid_text(raw)) == raw
    for wrong in ("abc", "é" * 22, "A" * 30):
        with pytest.raises(SchemaError):
            uuid_from_text(wrong)
