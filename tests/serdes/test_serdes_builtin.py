from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import SerializationError
from ottla.records import Malformed
from ottla.serdes import Bytes, Int64, Json, Serde, SerdeContext, Str, as_serde

CTX = SerdeContext("orders", "key")


@pytest.mark.parametrize("serde", [Bytes(), Str(), Int64(), Json()])
def test_null_is_null_in_both_directions(serde: Serde[object]) -> None:
    assert serde.serialize(None, CTX) is None
    assert serde.deserialize(None, CTX) is None
    assert serde.deserialize_many([None, None], CTX) == [None, None]


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_int64_is_eight_bytes_big_endian_as_the_java_long_serializer(number: int) -> None:
    data = Int64().serialize(number, CTX)
    assert data == number.to_bytes(8, "big", signed=True)
    assert Int64().deserialize(data, CTX) == number


@given(st.text())
def test_str_is_utf_8(text: str) -> None:
    data = Str().serialize(text, CTX)
    assert data == text.encode("utf-8")
    assert Str().deserialize(data, CTX) == text


@pytest.mark.parametrize("given_bytes", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_accepts_any_buffer_and_gives_bytes(given_bytes: bytes) -> None:
    data = Bytes().serialize(given_bytes, CTX)
    assert type(data) is bytes
    assert data == b"abc"


def test_text_that_is_not_utf_8_is_evidence_not_an_exception() -> None:
    found = Str().deserialize(b"ok\xff", CTX)
    assert isinstance(found, Malformed)
    assert (found.part, found.raw, found.kind, found.error_type) == (
        "key",
        b"ok\xff",
        "malformed",
        "UnicodeDecodeError",
    )
    assert "position 2" in found.error


@given(st.binary().filter(lambda data: len(data) != 8))
def test_an_int64_of_another_length_is_malformed_and_says_its_length(data: bytes) -> None:
    found = Int64().deserialize(data, CTX)
    assert isinstance(found, Malformed)
    assert f"found {len(data)}" in found.error


@pytest.mark.parametrize(
    ("serde", "value", "wanted"),
    [
        (Bytes(), "text", "orders key: expected bytes, got str"),
        (Str(), b"bytes", "orders key: expected str, got bytes"),
        (Str(), "\ud800", "orders key: .*surrogates not allowed"),
        (Int64(), "1", "orders key: expected int, got str"),
        (Int64(), True, "orders key: expected int, got bool"),
        (Int64(), 2**63, "orders key: 9223372036854775808 does not fit 64 bits"),
    ],
)
def test_a_value_of_another_type_is_refused_with_topic_part_and_both_types(
    serde: Serde[object], value: object, wanted: str
) -> None:
    with pytest.raises(SerializationError, match=wanted):
        serde.serialize(value, CTX)


@pytest.mark.parametrize(
    ("given_serde", "wanted"),
    [(None, Bytes), (bytes, Bytes), (str, Str), (int, Int64), (Str, Str), (Str(), Str), (Json, Json)],
)
def test_a_serde_may_be_named_by_its_class_or_by_the_type_it_gives(given_serde: object, wanted: type) -> None:
    assert type(as_serde(given_serde)) is wanted


def test_a_class_without_a_format_is_refused_with_advice() -> None:
    class Order: ...

    with pytest.raises(TypeError, match=r"Json\(Order\) or Avro\(Order\)"):
        as_serde(Order)


def test_what_is_no_serde_is_named_without_what_it_holds() -> None:
    with pytest.raises(TypeError, match="got a dict of 1") as caught:
        as_serde({"sasl.password": "hunter2"})
    assert "hunter2" not in str(caught.value)
