"""CRC-32C by the vectors of RFC 3720, in C and in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.records import crc32c
from ottla_wire.records.crc32c import extend_in_python

VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_the_checksum_is_castagnolis(data, expected):
    assert crc32c(data) == expected
    assert extend_in_python(0, data) == expected


@given(data=st.binary(max_size=500), at=st.integers(0, 500))
def test_a_checksum_continues_from_a_part(data, at):
    assert crc32c(data[at:], crc32c(data[:at])) == crc32c(data)
    assert extend_in_python(crc32c(data[:at]), data[at:]) == crc32c(data)


def test_any_buffer_of_any_size_has_the_same_checksum():
    for size in (0, 1, 65_535, 65_536, 65_537, 200_000):
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        assert crc32c(memoryview(bytearray(data))) == crc32c(bytearray(data)) == crc32c(data)
