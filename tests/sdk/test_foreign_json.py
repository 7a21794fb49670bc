"""JSON that somebody else wrote: read within bounds, or refused by one error, in time."""

from __future__ import annotations

import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.foreign_json import MOST_DEPTH, ForeignJsonError, is_deeper_than, read_json

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(_json, st.booleans())
def test_what_others_write_comes_back(value: object, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert read_json(text) == read_json(text.encode()) == value


@given(st.binary() | st.text(st.sampled_from('[]{}":,\\\\1e-0 a')).map(str.encode))
def test_any_bytes_are_read_or_refused_by_one_error(data: bytes) -> None:
    try:
        read_json(data)
    except ForeignJsonError:
        return


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"[" * 2_000,
            b"[" * 2_000 + b"]" * 2_000,
            b'{"a":' * 2_000,
            b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1),
        ),
        *(b"NaN", b"[Infinity]", b"", b"1 2", b"\xff", b'"\\ud800"', "\ud800", b"1" * 5_000, b"1e400"),
    ],
)
def test_what_is_no_json_within_the_bounds_is_refused(data: bytes | str) -> None:
    with pytest.raises(ForeignJsonError):
        read_json(data)


def test_depth_counts_brackets_and_not_those_in_texts() -> None:
    at_most = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert not is_deeper_than(MOST_DEPTH, at_most)
    assert isinstance(read_json(at_most), list)
    brackets = '[{"' * 5_000
    assert read_json(json.dumps([brackets, "\\", '\\"' + brackets])) == [brackets, "\\", '\\"' + brackets]
    assert read_json(b"[" + b"[[]]," * 5_000 + b"1]")[-1] == 1


def test_size_is_bounded_before_anything_is_read() -> None:
    with pytest.raises(ForeignJsonError, match="found 11 bytes, wanted at most 10 bytes of JSON"):
        read_json(b'"123456789"', most_bytes=10)


@pytest.mark.parametrize(
    "data",
    [
        b"[]," * 300_000,
        b'"' + b'\\"' * 500_000,
        b'"' * 500_001 + b"[" * 300,
        b'"\\' * 400_000,
        b"[" + b'"",' * 300_000 + b"1]",
    ],
)
def test_the_time_is_that_of_the_bytes(data: bytes) -> None:
    began = time.process_time()
    try:
        read_json(data)
    except ForeignJsonError:
        pass
    is_deeper_than(MOST_DEPTH, data)
    assert time.process_time() - began < 10


def test_depth_does_not_depend_on_how_deep_the_caller_is() -> None:
    def at_depth(frames: int) -> bool:
        if frames:
            return at_depth(frames - 1)
        try:
            return isinstance(read_json(b"[" * 100 + b"]" * 100), list)
        except ForeignJsonError:
            return False

    assert at_depth(sys.getrecursionlimit() // 2)
