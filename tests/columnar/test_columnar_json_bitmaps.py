"""64 bits of every row at a time: what the readers of JSON ask of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar.values.json_bitmaps import BitReader, WordReader, is_word

bits = st.lists(st.tuples(st.integers(0, 600), st.booleans()), max_size=20).map(
    lambda runs: [is_set and n == 0 for length, is_set in runs for n in range(length)]
)


@given(bits, st.data())
def test_the_next_bit_is_found_however_far_it_is(found: list[bool], draw: st.DataObject) -> None:
    flags = np.array(found, dtype=np.bool_)
    cut = draw.draw(st.integers(0, len(found) // 8)) * 8
    parts = [np.packbits(part, bitorder="little") for part in (flags[:cut], flags[cut:])]
    positions = draw.draw(st.lists(st.integers(0, len(found) + 9), max_size=30))
    expected = [next((n for n in range(at, len(found)) if found[n]), len(found)) for at in positions]
    reader = BitReader(parts, len(found))
    assert reader.next(np.array(positions, dtype=np.int64)).tolist() == expected


@pytest.mark.parametrize("at", range(64))
def test_every_bit_of_a_word_is_found(at: int) -> None:
    flags = np.zeros(64, dtype=np.bool_)
    flags[at] = True
    reader = BitReader([np.packbits(flags, bitorder="little")], 64)
    assert reader.next(np.array([0, at, at + 1])).tolist() == [at, at, 64]


@given(st.binary(max_size=20), st.lists(st.integers(0, 30), max_size=10))
def test_words_behind_the_end_of_the_data_are_zeros(data: bytes, positions: list[int]) -> None:
    words = WordReader(np.frombuffer(data, dtype=np.uint8)).at(np.array(positions, dtype=np.int64))
    expected = [int.from_bytes(data[at : at + 8], "little") for at in positions]
    assert words.tolist() == expected


@given(st.lists(st.sampled_from([b"null", b"true", b"false", b"nul", b"nulls", b"falsE", b""]), min_size=1, max_size=9))
def test_a_word_is_known_by_all_of_its_bytes_and_its_length(values: list[bytes]) -> None:
    data = np.frombuffer(b"".join(values), dtype=np.uint8)
    size = np.array([len(value) for value in values])
    words = WordReader(data).at(np.cumsum(size) - size)
    for word in (b"null", b"true", b"false"):
        assert is_word(word, words, size).tolist() == [value == word for value in values]
