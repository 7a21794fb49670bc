"""JSON read a column at a time: the values and errors of the row decoder, whatever the bytes."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar.values import json_columns
from ottla.columnar.values.decoding import ColumnDecoder, decoder_for
from ottla.columnar.values.json_columns import read_json_columns
from ottla.columnar.values.json_types import JsonRecord
from ottla.columnar.values.rows import decode_rows
from ottla.serdes import Json, SerdeContext

CTX = SerdeContext("orders")


@dataclasses.dataclass
class Order:
    shop: str
    number: int
    customer: str | None
    amount: float
    paid: bool
    count: int | None = None
    rate: float | None = 1
    sent: bool | None = False
    note: str = "none"


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    shop_name: str
    number: int = 7


class Parcel(TypedDict):
    shop: str
    weight: NotRequired[float]


class Tagged(msgspec.Struct, tag=True):
    shop: str


class Checked(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("a number is not negative")


class Limited(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=0)]


class Nested(msgspec.Struct):
    first: Limited
    number: int


class MadeAnew(msgspec.Struct):
    number: int
    note: str = msgspec.field(default_factory=lambda: "new")


@pytest.fixture(autouse=True, scope="module")
def few_rows_are_read_in_columns() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(json_columns, "PAYS_FROM", 1)
    yield
    patch.undo()


ORDERS = decoder_for(Json(Order))
GOOD = {"shop": "a", "number": 1, "customer": None, "amount": 0.5, "paid": True}


def same_as_row_by_row(decoder: ColumnDecoder, raw: list[bytes | None]) -> tuple[list[Any], list[Any]]:
    """Decode both ways, and compare everything; the values and errors."""
    values, errors = decoder.decode(pa.array(raw, pa.binary()), topic="orders")
    values.validate(full=True)
    expected, expected_errors = decode_rows(decoder.serde, raw, decoder.type, CTX)
    assert values.type == expected.type
    assert list(map(exactly, values.to_pylist())) == list(map(exactly, expected.to_pylist())), raw
    assert errors.to_pylist() == expected_errors.to_pylist(), raw
    return values.to_pylist(), errors.to_pylist()


def exactly(value: Any) -> Any:
    """Floats by their bits: zero has two, and NaN is not even itself."""
    if isinstance(value, dict):
        return {name: exactly(part) for name, part in value.items()}
    return struct.pack("<d", value) if isinstance(value, float) else value


def doubtful_rows(decoder: ColumnDecoder, raw: list[bytes | None]) -> list[int]:
    """The rows that were not read in columns."""
    assert isinstance(decoder._layout, JsonRecord)
    skip = 5 if decoder.serde._framing is not None else 0  # type: ignore[attr-defined]
    _, bad = read_json_columns(decoder._layout, pa.array(raw, pa.binary()), skip=skip)
    return list(np.flatnonzero(bad))


# Values as they may stand in JSON, right and wrong

NUMBERS = [
    *b"""
    0 -0 -0.0 0.0 1 -1 01 -01 00 +1 1. .5 -.5 1.0 1e3 1E+3 1e-3 1e 1e+ 1.e5 1.5e5 1e5.5 1e5e5 1..5 1.5.5 --1 1- -
    -e5 1-1 1e--5 1.5-5 -1.5E-05 0e0 0.5e-0 00.5 0x10 0b1 1_000 1,5 Infinity -Infinity NaN nan inf
    9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
    18446744073709551615 18446744073709551616 9007199254740993 9007199254740993.0000000000000000000000000000001
    1e308 1e309 -1e999 1e-999 2.4703282292062328e-324 5e-324 2.2250738585072011e-308 1.7976931348623159e308
    0.1000000000000000055511151231257827021181583404541015625 123456789012345678901234567890e-10
    """.split(),
    *(b"1" * 400, b"0." + b"0" * 400 + b"1", b"1 ", b" 1", b"\t1", b"1\xc2\xa0"),
]
OTHERS = [
    *b"null nul nulll Null n true false True tru truee t falsee fals [] [1] {} {'a':1}".split(),
    *(b"", b'{"a": 1}', b"'a'", b"/*c*/1", b"1, 2", b'1, "number": 5', b"\xef\xbb\xbf1"),
    *(b'"', b'""', b'"a"', b'"a', b'a"', b'"a"b"', b'"a" "b"', b'"a", "b"', b'" "'),
    *(b'"\\""', b'"\\\\"', b'"\\u0041"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\x"'),
    *(b'"a\nb"', b'"\x00"', b'"\x1f"', b'"\x7f"', '"ü€😀"'.encode(), b'"\xef\xbb\xbf"'),
    *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"'),
    *(b'"}"', b'", "number": 2, "x": "', b'", "paid": true}'),
]

literals = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(OTHERS),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    st.integers(-(2**66), 2**66).map(lambda number: str(number).encode()),
    st.from_regex(rb"-?[0-9.eE+-]{1,12}", fullmatch=True),
    st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")),
)
good_literals = {
    "shop": st.sampled_from([b'"a"', b'""', b'"shop, 7"', '"ü"'.encode()]),
    "number": st.integers(-(2**63), 2**63 - 1).map(lambda number: str(number).encode()),
    "customer": st.sampled_from([b"null", b'"c"', b'""', b'"{\'}"']),
    "amount": st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    "paid": st.sampled_from([b"true", b"false"]),
    "count": st.sampled_from([b"null", b"0", b"12"]),
    "rate": st.sampled_from([b"null", b"2.5e-7", b"12"]),
    "sent": st.sampled_from([b"null", b"true", b"false"]),
    "note": st.sampled_from([b'"n"', b'"false"']),
    "more": st.sampled_from([b"null", b"0.5", b'"x"', b"true"]),
}
REQUIRED = ("shop", "number", "customer", "amount", "paid")
STYLES = [
    (b", ", b": ", b"{", b"}"),
    (b",", b":", b"{", b"}"),
    (b",\n  ", b": ", b"{\n  ", b"\n}\n"),
    (b" , ", b":", b" {", b"} "),
]
key_orders = st.lists(st.sampled_from([name for name in good_literals if name not in REQUIRED]), unique=True).flatmap(
    lambda more: st.permutations([*REQUIRED, *more])
)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    """Rows of one or two producers; some of the rows, and some of their values, are not what they should be."""
    producers = draw(st.lists(st.tuples(key_orders, st.sampled_from(STYLES)), min_size=1, max_size=2))
    rows: list[bytes | None] = []
    for _ in range(draw(st.integers(1, 12))):
        names, (comma, colon, opening, closing) = draw(st.sampled_from(producers))
        spoilt = draw(st.sampled_from([None, None, *names]))
        parts = [
            b'"' + name.encode() + b'"' + colon + draw(literals if name == spoilt else good_literals[name])
            for name in names
        ]
        row: bytes | None = opening + comma.join(parts) + closing
        rows.append(draw(st.sampled_from([row, row, row, row, draw(spoilt_rows(row or b""))])))
    return rows


def spoilt_rows(row: bytes) -> st.SearchStrategy[bytes | None]:
    at = st.integers(0, len(row))
    return st.one_of(
        at.map(lambda place: row[:place]),
        at.map(lambda place: row[place:]),
        st.tuples(at, st.binary(max_size=2)).map(lambda cut: row[: cut[0]] + cut[1] + row[cut[0] + len(cut[1]) :]),
        st.tuples(at, st.sampled_from(list(b'"\\{}[]:, \n01-."'))).map(
            lambda cut: row[: cut[0]] + bytes([cut[1]]) + row[cut[0] :]
        ),
        st.sampled_from(
            [None, b"", b"null", b"{}", b"[]", b"\xef\xbb\xbf" + row, row + row, row + b" x", b"\x00" + row]
        ),
        st.just(row.replace(b"number", b"shop")),
        st.just(row.replace(b"number", b"numbeR")),
        st.just(row.replace(b"number", b"n\\u0075mber")),
    )


@given(batches())
def test_values_and_errors_are_those_of_the_row_decoder(raw: list[bytes | None]) -> None:
    same_as_row_by_row(ORDERS, raw)


@given(
    st.lists(literals, min_size=1, max_size=30), st.sampled_from(["number", "amount", "customer", "paid", "rate", "x"])
)
def test_whatever_stands_for_one_value_in_otherwise_good_rows(found: list[bytes], name: str) -> None:
    front = b'{"shop": "a", "number": 1, "customer": null, "amount": 0.5, "paid": true, '
    good = front + b'"%s": null}' % name.encode()
    raw: list[bytes | None] = [front + b'"%s": %s}' % (name.encode(), literal) for literal in found]
    if name in REQUIRED:  # in its place, not once more
        parts = {key: json.dumps(value).encode() for key, value in GOOD.items()}
        raw = [
            b"{" + b", ".join(b'"%s": %s' % (k.encode(), v) for k, v in (parts | {name: literal}).items()) + b"}"
            for literal in found
        ]
        good = json.dumps(GOOD).encode()
    same_as_row_by_row(ORDERS, [good, *raw, good])


ENDS = [
    (decoder_for(Json(msgspec.defstruct("OfOne", [("a", kind, None)]))), good)
    for kind, good in [(int, b"1"), (float | None, b"1"), (str, b'"x"'), (str | None, b'"x"'), (bool, b"true")]
]
ENDS.append((decoder_for(Json(msgspec.defstruct("OfAnother", [("b", int, 1)]))), b"1"))


@pytest.mark.parametrize(
    "decoder", [decoder for decoder, _ in ENDS], ids=["int", "float", "str", "text", "bool", "more"]
)
def test_whatever_stands_for_the_last_value_of_all_rows(decoder: ColumnDecoder) -> None:
    good = next(good for known, good in ENDS if known is decoder)
    for last in NUMBERS + OTHERS:
        same_as_row_by_row(decoder, [b'{"a":%s}' % good, b'{"a":%s}' % last])
        same_as_row_by_row(decoder, [b'{"a": %s }' % last] * 3)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_are_rounded_as_the_row_decoder_rounds_them(numbers: list[float]) -> None:
    raw: list[bytes | None] = [json.dumps(GOOD | {"amount": number}).encode() for number in numbers]
    values, _ = same_as_row_by_row(ORDERS, raw)
    assert [value["amount"] for value in values] == [float(number) for number in numbers]


def test_rows_of_several_producers_are_read_in_columns_but_those_that_need_a_look() -> None:
    def short(n: int) -> dict[str, Any]:
        return GOOD | {"shop": f"s, {n}", "number": n - 50, "customer": f"ü {n}" if n % 3 else None, "amount": n / 7}

    def long(n: int) -> dict[str, Any]:
        return {"more": n / 3, "paid": False, "customer": "c", "rate": n, "shop": "", "amount": 1e-7 * n, "number": -n}

    rows: list[bytes | None] = [
        json.dumps(short(n), ensure_ascii=False).encode() if n % 2 else json.dumps(long(n), indent=1).encode()
        for n in range(400)
    ]
    poison = {7: None, 60: b"{", 61: json.dumps(GOOD | {"shop": "ü"}).encode(), 399: b'{"shop": "a", "number": 01}'}
    for row, raw in poison.items():
        rows[row] = raw
    assert doubtful_rows(ORDERS, rows) == [60, 61, 399]
    _, errors = same_as_row_by_row(ORDERS, rows)
    assert [row for row, error in enumerate(errors) if error] == [60, 399]


def test_unknown_fields_are_passed_over_unless_they_are_refused() -> None:
    raw: list[bytes | None] = [b'{"more": %d, "shopName": "a", "number": %d}' % (n, n) for n in range(5)]
    assert doubtful_rows(decoder_for(Json(Order)), raw) == [0, 1, 2, 3, 4]  # no shop
    values, errors = same_as_row_by_row(decoder_for(Json(Strict)), raw)
    assert values == [None] * 5
    assert all("unknown field" in error["message"] for error in errors)
    known: list[bytes | None] = [b'{"shopName": "a"}'] * 3
    assert doubtful_rows(decoder_for(Json(Strict)), known) == []
    assert same_as_row_by_row(decoder_for(Json(Strict)), known)[0] == [{"shopName": "a", "number": 7}] * 3


def test_fields_that_a_dict_need_not_have_are_null() -> None:
    decoder = decoder_for(Json(Parcel))
    raw: list[bytes | None] = [b'{"shop": "a"}', b'{"shop": "b"}', b'{"shop": "c", "weight": 1.5}'] * 2
    assert doubtful_rows(decoder, raw) == []
    values, _ = same_as_row_by_row(decoder, raw)
    assert values[:3] == [{"shop": "a", "weight": None}, {"shop": "b", "weight": None}, {"shop": "c", "weight": 1.5}]


@pytest.mark.parametrize(("name", "text"), [("number", "0"), ("amount", "1.5"), ("paid", "true"), ("count", "7")])
def test_a_value_in_quotes_is_text_and_nothing_else_though_all_rows_have_it(name: str, text: str) -> None:
    raw: list[bytes | None] = [json.dumps(GOOD | {name: text}).encode()] * 3
    assert doubtful_rows(ORDERS, raw) == [0, 1, 2]
    values, _ = same_as_row_by_row(ORDERS, raw)
    assert values == [None] * 3


def test_null_for_a_whole_value_is_decided_row_by_row() -> None:
    decoder = decoder_for(Json(Order | None))
    raw: list[bytes | None] = [json.dumps(GOOD).encode(), b"null", None, json.dumps(GOOD).encode()]
    assert doubtful_rows(decoder, raw) == [1]
    same_as_row_by_row(decoder, raw)


@pytest.mark.parametrize("kind", [Tagged, Checked, Nested, dict[str, int], list[int], int])
def test_types_with_more_to_them_than_plain_fields_are_decoded_row_by_row(kind: Any) -> None:
    assert not decoder_for(Json(kind)).is_columnwise


def test_a_constraint_is_a_rule_that_only_the_row_decoder_knows() -> None:
    assert not decoder_for(Json(Limited)).is_columnwise
    assert decoder_for(Json(Order)).is_columnwise


def test_a_default_that_is_made_for_each_object_is_left_to_the_row_decoder() -> None:
    decoder = decoder_for(Json(MadeAnew))
    assert doubtful_rows(decoder, [b'{"number": 1}'] * 2) == [0, 1]
    assert doubtful_rows(decoder, [b'{"number": 1, "note": "x"}'] * 2) == []
    same_as_row_by_row(decoder, [b'{"number": 1}'] * 2)


@pytest.mark.parametrize(
    ("kind", "default", "is_taken"),
    [
        *((int, default, True) for default in (-(2**63), 2**63 - 1)),
        *((int, default, False) for default in (-(2**63) - 1, 2**63, True)),
        *((float, default, True) for default in (0.5, 2**53)),
        *((float, default, False) for default in (2**53 + 1, "0.5")),
        *((str, default, True) for default in ("", "\ud7ff\ue000\U0001f600")),
        *((str, default, False) for default in ("a\ud800", "\udfff", b"")),
        *((bool, default, True) for default in (True, False)),
        (bool, 1, False),
    ],
)
def test_a_default_that_its_column_does_not_take_is_left_to_the_row_decoder(
    kind: Any, default: Any, is_taken: bool
) -> None:
    decoder = decoder_for(Json(msgspec.defstruct("Given", [("id", int), ("it", kind | None, default)])))
    raw: list[bytes | None] = [b'{"id": 1}'] * 2
    assert doubtful_rows(decoder, raw) == ([] if is_taken else [0, 1])
    if is_taken:
        values, _ = same_as_row_by_row(decoder, raw)
        assert values == [{"id": 1, "it": default}] * 2


def test_rows_behind_schema_ids_are_read_whatever_bytes_an_id_has() -> None:
    serde = Json(Order, registry="http://127.0.0.1:9")
    decoder = decoder_for(serde)
    good = json.dumps(GOOD | {"customer": "ü"}, ensure_ascii=False).encode()
    ids = [b"\0\0\0\0\1", b'\0"\\"\xff', b"\0\n\0\x80{", b'\0""""', b"\0\0\0\0\x22"]
    raw: list[bytes | None] = [front + good for front in ids]
    raw += [good, b"", b"\0", ids[0], b"\1" + ids[0][1:] + good, None, ids[1] + good[:-1], ids[2] + good]
    assert doubtful_rows(decoder, raw) == [5, 6, 7, 8, 9, 11]
    _, errors = same_as_row_by_row(decoder, raw)
    assert [row for row, error in enumerate(errors) if error] == [5, 6, 7, 8, 9, 11]


def test_rows_are_read_in_stretches_that_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    raw: list[bytes | None] = [json.dumps(GOOD | {"shop": "s" * (n % 9) ** 3}).encode() for n in range(300)]
    raw[17] = raw[250] = b"{"
    for size in (100, 5_000, 20_000, 1 << 20):
        monkeypatch.setattr(json_columns, "_CHUNK_BYTES", size)
        same_as_row_by_row(ORDERS, raw)
        assert doubtful_rows(ORDERS, raw) == [17, 250]


def test_a_slice_of_a_column_is_read_as_the_column_that_it_is() -> None:
    raw = [json.dumps(GOOD | {"number": n}).encode() for n in range(20)]
    values, errors = ORDERS.decode(pa.array(raw, pa.binary()).slice(7, 5))
    assert values.field("number").to_pylist() == [7, 8, 9, 10, 11]
    assert errors.null_count == 5
    assert len(ORDERS.decode(pa.array([], pa.binary()))[0]) == 0
    assert ORDERS.decode(pa.array([None] * 3, pa.binary()))[0].to_pylist() == [None] * 3


def _digits(number: int) -> bytes:
    sign, power = (b"-", -number) if number < 0 else (b"", number)
    return sign + (str(power).encode() if power < 10**30 else b"1" + b"0" * 5000)


def test_one_row_that_is_wrong_costs_no_other_row_its_column() -> None:
    raw: list[bytes | None] = [json.dumps(GOOD | {"number": n * 10**17, "amount": n / 7}).encode() for n in range(50)]
    for row, bad in enumerate([b"1e999", b"-0", b"1e-5.5", b"0x10", b"nan", b"01"]):
        raw[row * 7] = json.dumps(GOOD).encode().replace(b"0.5", bad)
    for row, big in enumerate([2**63, -(2**63) - 1, 10**25, -(10**5000)]):
        raw[36 + row] = json.dumps(GOOD).encode().replace(b"1", b"%s" % _digits(big), 1)
    raw[40] = json.dumps(GOOD).encode().replace(b"1", b"-1" * 10, 1)  # as long, and no number either
    assert doubtful_rows(ORDERS, raw) == [0, 7, 14, 21, 28, 35, 36, 37, 38, 39, 40]
    same_as_row_by_row(ORDERS, raw)


def test_a_few_rows_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw: list[bytes | None] = [json.dumps(GOOD).encode()] * 10
    monkeypatch.setattr(json_columns, "PAYS_FROM", 11)
    assert doubtful_rows(ORDERS, raw) == list(range(10))
    same_as_row_by_row(ORDERS, raw)
