"""JSON on its way to columns: through structs that nobody sees, with the values and errors of the serde itself."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ottla.columnar.values.decoding import decoder_for
from ottla.columnar.values.reference_serdes import twin_of
from ottla.columnar.values.rows import decode_rows
from ottla.serdes import Json, SerdeContext

CTX = SerdeContext("orders")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Line:
    name: str
    count: int | None = None


@dataclasses.dataclass
class Order:
    id: int
    price: float
    name: str | None
    paid: bool = False
    first: Line | None = None
    lines: list[Line] = dataclasses.field(default_factory=list)
    by_name: dict[str, Line] = dataclasses.field(default_factory=dict)
    colour: Colour = Colour.RED
    at: dt.datetime | None = None
    note: str = "none"


SERDE = Json(Order)
DECODER = decoder_for(SERDE)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["red", "green", "2026-01-02T03:04:05Z"]),
)
lines = st.fixed_dictionaries({}, optional={"name": scalars, "count": scalars, "more": scalars})
good_lines = st.fixed_dictionaries({"name": st.text(max_size=4)}, optional={"count": st.none() | st.integers(-5, 5)})
any_line = good_lines | good_lines | lines | scalars
objects = st.fixed_dictionaries(
    {"id": st.integers(-5, 5) | scalars, "price": st.floats(-5, 5) | scalars, "name": st.text(max_size=4) | scalars},
    optional={
        "paid": scalars,
        "first": any_line,
        "lines": st.lists(any_line, max_size=3) | scalars,
        "by_name": st.dictionaries(st.text(max_size=3), any_line, max_size=2) | scalars,
        "colour": scalars,
        "at": scalars,
        "note": scalars,
        "unknown": any_line,
    },
)
texts = st.one_of(
    objects.map(lambda found: json.dumps(found).encode()),
    objects.map(lambda found: json.dumps(found, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")),
    st.fixed_dictionaries({"id": st.integers(0, 9)}).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=8),
    st.none(),
)


@given(st.lists(texts, max_size=12))
def test_a_twin_gives_the_values_and_errors_of_its_serde(raw: list[bytes | None]) -> None:
    twin = twin_of(SERDE)
    assert twin is not None
    values, errors = decode_rows(SERDE, raw, DECODER.type, CTX)
    quick_values, quick_errors = decode_rows(SERDE, raw, DECODER.type, CTX, twin=twin)
    assert quick_values.to_pylist() == values.to_pylist()
    assert quick_errors.to_pylist() == errors.to_pylist()
    quick_values.validate(full=True)


def test_fields_that_are_missing_have_their_defaults() -> None:
    values, errors = DECODER.decode(pa.array([b'{"id": 1, "price": 2, "name": null}', None]))
    assert errors.null_count == 2
    assert values.to_pylist() == [
        {
            "id": 1,
            "price": 2.0,
            "name": None,
            "paid": False,
            "first": None,
            "lines": [],
            "by_name": [],
            "colour": "red",
            "at": None,
            "note": "none",
        },
        None,
    ]


@dataclasses.dataclass
class Checked:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("an amount is not negative")


@dataclasses.dataclass
class Shouting:
    name: str

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value.upper())


@dataclasses.dataclass
class Holder:
    inside: Checked


class OfPydantic(BaseModel):
    amount: int


@pytest.mark.parametrize("kind", [Checked, Shouting, OfPydantic, Order | OfPydantic, dict[str, int], list[int]])
def test_a_type_that_runs_code_of_its_own_or_has_no_dataclass_has_no_twin(kind: Any) -> None:
    assert twin_of(Json(kind)) is None


def test_the_rules_of_a_class_inside_another_are_applied() -> None:
    assert twin_of(Json(Holder)) is not None
    values, errors = decoder_for(Json(Holder)).decode(pa.array([b'{"inside": {"amount": -1}}']))
    assert values.to_pylist() == [None]
    assert "not negative" in errors.to_pylist()[0]["message"]


def test_a_serde_with_a_hook_has_no_twin() -> None:
    assert twin_of(Json(Order, dec_hook=lambda kind, value: kind(value))) is None


class Stored(msgspec.Struct, omit_defaults=True, rename="camel"):
    shop_name: str
    is_paid: bool = False
    lines: list[Line] = []


def test_a_struct_has_its_columns_by_its_names_in_json_and_what_it_omits_is_no_null() -> None:
    values, errors = decoder_for(Json(Stored)).decode(
        pa.array([b'{"shopName": "a"}', b'{"shopName": "b", "isPaid": true, "lines": [{"name": "x"}]}'])
    )
    assert errors.null_count == 2
    assert values.to_pylist() == [
        {"shopName": "a", "isPaid": False, "lines": []},
        {"shopName": "b", "isPaid": True, "lines": [{"name": "x", "count": None}]},
    ]


def test_a_row_among_many_that_does_not_decode_is_the_only_one_with_an_error() -> None:
    raw: list[bytes | None] = [json.dumps({"id": n, "price": n / 2, "name": f"n{n}"}).encode() for n in range(1_000)]
    raw[0], raw[500], raw[999], raw[250] = b"{", b'{"id": "x"}', b'{"id": 1}', None
    values, errors = DECODER.decode(pa.array(raw))
    assert [row for row, error in enumerate(errors.to_pylist()) if error] == [0, 500, 999]
    assert [row for row, value in enumerate(values.to_pylist()) if value is None] == [0, 250, 500, 999]
    assert values.field("id").to_pylist()[998] == 998
