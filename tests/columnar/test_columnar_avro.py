"""Column-wise Avro answers to the serde: equal on good rows, and never less strict on bad ones."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
from decimal import Decimal
from io import BytesIO
from typing import Annotated

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar.values.avro import LONGEST_ARRAY
from ottla.columnar.values.avro_types import parse_avro
from ottla.columnar.values.decoding import decoder_for, has_rules
from ottla.errors import ConfigError, RegistryUnavailable
from ottla.records import Malformed
from ottla.serdes import Avro, Int64, Json, SchemaRegistry, SerdeContext, Str, decimal
from ottla.serdes.subjects import record_name

CTX = SerdeContext("orders")


class Colour(enum.Enum):
    RED = "RED"
    BLUE = "BLUE"


@dataclasses.dataclass
class Line:
    name: str
    count: int | None


@dataclasses.dataclass
class Order:
    id: int
    name: str | None
    price: float
    paid: bool
    raw: bytes
    colour: Colour
    lines: list[Line]
    tags: dict[str, int]
    at: dt.datetime
    day: dt.date | None
    first: Line | None


lines = st.builds(Line, st.text(max_size=8), st.none() | st.integers(-(2**63), 2**63 - 1))
moments = st.integers(-(2**40), 2**42).map(
    lambda ms: dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=ms)
)
orders = st.builds(
    Order,
    id=st.integers(-(2**63), 2**63 - 1),
    name=st.none() | st.text(max_size=100),
    price=st.floats(allow_nan=False),
    paid=st.booleans(),
    raw=st.binary(max_size=20),
    colour=st.sampled_from(Colour),
    lines=st.lists(lines, max_size=4),
    tags=st.dictionaries(st.text(max_size=5), st.integers(-5, 5), max_size=3),
    at=moments,
    day=st.none() | st.dates(),
    first=st.none() | lines,
)
ORDER_SERDE = Avro(Order)
ORDER_DECODER = decoder_for(ORDER_SERDE)
JSON_SERDE = Json(Order)
JSON_DECODER = decoder_for(JSON_SERDE)
in_json = orders.filter(lambda order: math.isfinite(order.price))  # JSON has no infinity


def plain(value):
    """An order as the columns show it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return sorted(value.items())
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def check_equal(serde, decoder, raw):
    """Decode both ways; answer how many rows were bad."""
    values, errors = decoder.decode(pa.array(raw, pa.binary()))
    values.validate(full=True)
    assert values.type == decoder.type
    bad = 0
    for data, expected, value, error in zip(
        raw, serde.deserialize_many(raw, CTX), values.to_pylist(), errors.to_pylist(), strict=True
    ):
        if data is None:
            assert value is None
            assert error is None
        elif isinstance(expected, Malformed):
            bad += 1
            assert value is None
            assert error == {"kind": expected.kind, "type": expected.error_type, "message": expected.error}
        elif error is not None:
            bad += 1  # stricter than fastavro, and only where the value has no place in its column
            assert "does not fit the column" in error["message"]
        else:
            if isinstance(value, dict) and "tags" in value:
                value["tags"] = sorted(value["tags"])
            assert value == plain(expected)
    return bad


@given(st.lists(st.none() | orders, max_size=20))
def test_good_rows_are_equal_to_the_serdes(values):
    assert ORDER_DECODER.is_columnwise
    raw = [ORDER_SERDE.serialize(value, CTX) for value in values]
    assert check_equal(ORDER_SERDE, ORDER_DECODER, raw) == 0


@given(st.lists(st.none() | in_json, max_size=20))
def test_good_rows_of_json_are_equal_to_the_serdes(values):
    raw = [JSON_SERDE.serialize(value, CTX) for value in values]
    assert check_equal(JSON_SERDE, JSON_DECODER, raw) == 0


@pytest.mark.representative("serde1-decoder1")
@pytest.mark.parametrize(("serde", "decoder"), [(ORDER_SERDE, ORDER_DECODER), (JSON_SERDE, JSON_DECODER)])
@given(st.lists(in_json, min_size=1, max_size=8), st.data())
def test_damaged_rows_have_the_serdes_errors_and_do_not_disturb_their_neighbours(serde, decoder, values, draw):
    raw = [serde.serialize(value, CTX) for value in values]
    for _ in range(draw.draw(st.integers(1, 4))):
        row = draw.draw(st.integers(0, len(raw) - 1))
        change = draw.draw(st.sampled_from(["cut", "append", "flip", "empty", "noise"]))
        data = bytearray(raw[row])
        if change == "cut":
            data = data[: draw.draw(st.integers(0, len(data)))]
        elif change == "append":
            data += draw.draw(st.binary(min_size=1, max_size=20))
        elif change == "flip" and data:
            data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
        elif change == "empty":
            data = bytearray()
        else:
            data = bytearray(draw.draw(st.binary(max_size=60)))
        raw[row] = bytes(data)
    check_equal(serde, decoder, raw)


UNION = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "what", "type": ["null", "long", "string", {"type": "array", "items": "int"}]},
        {"name": "always", "type": ["string", "boolean"]},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 4}},
        {"name": "ratio", "type": "float"},
    ],
}


def test_a_union_of_several_types_is_a_struct_with_one_member_set():
    serde = Avro(UNION)
    events = [
        {"what": None, "always": "a", "id": b"1234", "ratio": 0.5},
        {"what": 7, "always": True, "id": b"abcd", "ratio": 1.5},
        {"what": "text", "always": "b", "id": b"\0\0\0\0", "ratio": 0.0},
        {"what": [1, 2], "always": "c", "id": b"9999", "ratio": -2.0},
    ]
    decoder = decoder_for(serde)
    values, errors = decoder.decode(pa.array([serde.serialize(e, CTX) for e in events]))
    assert errors.null_count == 4
    empty = {"member0": None, "member1": None, "member2": None}
    assert values.field("what").to_pylist() == [
        None,
        empty | {"member0": 7},
        empty | {"member1": "text"},
        empty | {"member2": [1, 2]},
    ]
    assert values.field("always").to_pylist()[1] == {"member0": None, "member1": True}
    assert values.field("id").to_pylist() == [b"1234", b"abcd", b"\0\0\0\0", b"9999"]
    assert values.field("ratio").to_pylist() == [0.5, 1.5, 0.0, -2.0]


def test_arrays_in_blocks_with_sizes_are_read():
    schema = fastavro.parse_schema({"type": "array", "items": "long"})
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, [1, 2, 3])
    sized = bytes([3, 4, 2, 4, 2, 6, 0])  # a block of -2 items in 2 bytes: 1, 2; then a block of 1 item: 3; the end
    values, errors = decoder_for(Avro({"type": "array", "items": "long"})).decode(pa.array([stream.getvalue(), sized]))
    assert values.to_pylist() == [[1, 2, 3], [1, 2, 3]]
    assert errors.null_count == 2


def test_a_very_long_array_is_left_to_the_serde_and_comes_out_whole():
    serde = Avro({"type": "array", "items": "string"})
    long = [str(i) for i in range(5000)]
    values, errors = decoder_for(serde).decode(pa.array([serde.serialize(v, CTX) for v in (["a"], long, [])]))
    assert values.to_pylist() == [["a"], long, []]
    assert errors.null_count == 3


@dataclasses.dataclass
class Checked:
    amount: int

    def __post_init__(self):
        if self.amount < 0:
            raise ValueError("an amount is not negative")


def test_rules_of_the_type_are_applied_row_by_row():
    serde = Avro(Checked)
    good = serde.serialize(Checked(5), CTX)
    decoder = decoder_for(serde)
    values, errors = decoder.decode(pa.array([good, b"\x09"]))
    assert not decoder.is_columnwise
    assert values.to_pylist() == [{"amount": 5}, None]
    assert errors.to_pylist()[1]["kind"] == "invalid"
    assert "not negative" in errors.to_pylist()[1]["message"]


@dataclasses.dataclass
class Priced:
    price: Annotated[Decimal, decimal(10, 2)]


def test_decimals_are_decoded_row_by_row():
    serde = Avro(Priced)
    decoder = decoder_for(serde)
    values, _ = decoder.decode(pa.array([serde.serialize(Priced(Decimal("12.34")), CTX)]))
    assert not decoder.is_columnwise
    assert values.to_pylist() == [{"price": Decimal("12.34")}]


def test_a_type_that_contains_itself_has_no_columns():
    schema = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(ConfigError, match="contains itself"):
        parse_avro(schema)


def test_named_types_are_found_by_name_and_namespace():
    schema = {
        "type": "record",
        "name": "Pair",
        "namespace": "a.b",
        "fields": [
            {"name": "x", "type": {"type": "enum", "name": "Side", "symbols": ["L", "R"]}},
            {"name": "y", "type": "Side"},
            {"name": "z", "type": ["null", "a.b.Side"]},
        ],
    }
    serde = Avro(schema)
    values, _ = decoder_for(serde).decode(pa.array([serde.serialize({"x": "L", "y": "R", "z": "L"}, CTX)]))
    assert values.to_pylist() == [{"x": "L", "y": "R", "z": "L"}]


def test_rules_are_found_wherever_they_stand_in_a_type():
    @dataclasses.dataclass
    class Outer:
        inner: list[Checked | None]

    assert has_rules(Outer)
    assert not has_rules(Order)


@dataclasses.dataclass
class Reading:
    sensor: str
    value: float | None
    at: dt.datetime


def test_json_of_a_type_becomes_columns_and_bad_rows_have_their_error():
    serde = Json(Reading)
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    raw = [serde.serialize(Reading("a", None, at), CTX), b"{", b'{"sensor": 1}', None]
    values, errors = decoder_for(serde).decode(pa.array(raw))
    assert values.to_pylist() == [{"sensor": "a", "value": None, "at": at}, None, None, None]
    assert [e and e["kind"] for e in errors.to_pylist()] == [None, "malformed", "invalid", None]


def test_json_of_any_type_needs_to_be_told_its_columns():
    with pytest.raises(ConfigError, match="does not say"):
        decoder_for(Json())
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    values, errors = decoder_for(Json(), type=kind).decode(pa.array([b'{"a": 1, "c": 2}', b'{"a": "x"}', b"[1]"]))
    assert values.to_pylist() == [{"a": 1, "b": None}, None, None]
    assert errors.null_count == 1


def test_simple_serdes_have_simple_columns():
    values, errors = decoder_for(Int64()).decode(pa.array([bytes(7) + b"\x05", b"12"]))
    assert values.to_pylist() == [5, None]
    assert errors.to_pylist()[1]["kind"] == "malformed"
    assert decoder_for(Str()).decode(pa.array([b"x"]))[0].to_pylist() == ["x"]


def test_numbers_beyond_an_avro_int_are_bad_rows():
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    too_large = BytesIO()
    fastavro.schemaless_writer(too_large, fastavro.parse_schema({"type": "long"} | {}), 2**40)
    values, errors = decoder_for(Avro(schema)).decode(pa.array([too_large.getvalue()]))
    assert values.to_pylist() == [None]
    assert "does not fit" in errors.to_pylist()[0]["message"]


def test_not_a_number_is_a_number_in_avro():
    serde = Avro({"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]})
    values, errors = decoder_for(serde).decode(pa.array([serde.serialize({"x": math.nan}, CTX)]))
    assert math.isnan(values.to_pylist()[0]["x"])
    assert errors.null_count == 1


def test_a_given_writers_schema_is_resolved_as_the_serde_does():
    written = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}, {"name": "a", "type": "string"}]}
    wanted = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    decoder = decoder_for(Avro(wanted, writer_schema=written))
    values, errors = decoder.decode(pa.array([Avro(written).serialize({"a": "x", "b": 1}, CTX)]))
    assert values.to_pylist() == [{"a": "x"}]
    assert errors.null_count == 1
    assert not decoder.is_columnwise


@dataclasses.dataclass
class Version1:
    id: int


@dataclasses.dataclass
class Version2:
    id: int
    note: str = "none"


Version1.__name__ = Version2.__name__ = "Version"


@pytest.fixture
def registry():
    from ottla.testing.registry import EmbeddedRegistry

    with EmbeddedRegistry() as running:
        yield running


def test_rows_behind_schema_ids_are_read_by_the_schema_that_wrote_them(registry):
    old, new = Avro(Version1, registry=registry.url), Avro(Version2, registry=registry.url)
    raw = [
        old.serialize(Version1(1), CTX),
        new.serialize(Version2(2, "two"), CTX),
        None,
        b"",
        b"\0\0\0\xff\xff\x04",  # an id that nobody knows
        b"{}",
        new.serialize(Version2(3), CTX)[:-1],
        new.serialize(Version2(4, "four"), CTX),
    ]
    decoder = decoder_for(new)
    assert decoder.is_columnwise
    values, errors = decoder.decode(pa.array(raw, pa.binary()))
    assert values.to_pylist() == [
        {"id": 1, "note": "none"}, {"id": 2, "note": "two"}, None, None, None, None, None, {"id": 4, "note": "four"},
    ]  # fmt: skip
    assert [e and e["kind"] for e in errors.to_pylist()] == [None, None, None, *["malformed"] * 4, None]


def test_a_registry_that_is_away_is_an_outage_and_no_bad_row(registry):
    serde = Avro(Version2, registry=registry.url)
    data = serde.serialize(Version2(1), CTX)
    decoder = decoder_for(Avro(Version2, registry="http://127.0.0.1:9"))
    with pytest.raises(RegistryUnavailable):
        decoder.decode(pa.array([data]))


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("[" * 2_000, "UnusableSchema"),
        ("5", "UnusableSchema"),
        ('{"type": "array", "items": "null"}', "UnusableSchema"),
    ],
)
def test_rows_of_a_schema_that_is_none_have_the_serdes_errors(registry, schema, error):
    client = SchemaRegistry(registry.url)
    client._http.request = lambda *given: {"schema": schema}
    serde = Avro(Version2, registry=client)
    raw = [b"\0\0\0\0\x01\x02", None, b"\0\0\0\0\x01\x02"]
    values, errors = decoder_for(serde).decode(pa.array(raw, pa.binary()))
    assert values.to_pylist() == [None, None, None]
    assert [found and found["type"] for found in errors.to_pylist()] == [error, None, error]
    assert errors.to_pylist()[0]["message"] == serde.deserialize(raw[0], SerdeContext("", "value")).error


def test_records_of_another_name_are_refused_as_the_serde_refuses_them(registry):
    def schema(name):
        return {"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]}

    written = Avro(schema("Paid"), registry=registry.url, subject=record_name).serialize({"id": 1}, CTX)
    serde = Avro(schema("Refunded"), registry=registry.url, subject=record_name)
    good = serde.serialize({"id": 2}, CTX)
    values, errors = decoder_for(serde).decode(pa.array([written, good], pa.binary()))
    assert values.to_pylist() == [None, {"id": 2}]
    assert errors.to_pylist()[0]["message"] == serde.deserialize(written, CTX).error


def _record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


UNIONS = {
    **_record(
        "Holder",
        event=["null", _record("Placed", id="long"), _record("Cancelled", id="long", why=["long", "string"])],
        numbers=["long", "double", "string", {"type": "map", "values": "long"}],
        times=[{"type": "long", "logicalType": "timestamp-micros"}, {"type": "enum", "name": "E", "symbols": ["X"]}],
    )
}
LONG = [number % 7 for number in range(LONGEST_ARRAY + 1)]
AT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def test_unions_in_rows_that_the_serde_decides_are_those_of_the_columns():
    """An array that is too long for rounds, and a row of another schema, go to the serde."""
    with_array = {**UNIONS, "fields": [*UNIONS["fields"], {"name": "many", "type": {"type": "array", "items": "long"}}]}
    serde = Avro(with_array)
    decoder = decoder_for(serde)
    assert decoder.is_columnwise
    rows = [
        {"event": None, "numbers": 5, "times": AT},
        {"event": ("Placed", {"id": 1}), "numbers": 0.5, "times": "X"},
        {"event": ("Cancelled", {"id": 2, "why": "late"}), "numbers": {"a": 1}, "times": AT},
        {"event": ("Cancelled", {"id": 2, "why": 7}), "numbers": "text", "times": AT},
    ]
    short, long = ([serde.serialize({**row, "many": many}, CTX) for row in rows] for many in (LONG[:3], LONG))
    by_columns, no_errors = decoder.decode(pa.array(short))
    by_rows, no_errors_either = decoder.decode(pa.array(long))
    assert no_errors.null_count == no_errors_either.null_count == len(rows)
    for name in ("event", "numbers", "times"):
        assert by_rows.field(name).to_pylist() == by_columns.field(name).to_pylist()
    assert by_rows.field("many").to_pylist() == [LONG] * len(rows)
    empty = {"member0": None, "member1": None}
    assert by_rows.field("event").to_pylist()[2] == empty | {
        "member1": {"id": 2, "why": {"member0": None, "member1": "late"}}
    }


def test_unions_of_classes_in_rows_that_the_serde_decides_are_those_of_the_columns(registry):
    placed = dataclasses.make_dataclass("Placed", [("id", int)])
    cancelled = dataclasses.make_dataclass("Cancelled", [("id", int), ("tags", list[int])])
    serde = Avro(placed | cancelled)
    values = [placed(1), cancelled(2, LONG[:2]), cancelled(3, LONG)]
    columns, errors = decoder_for(serde).decode(pa.array([serde.serialize(value, CTX) for value in values]))
    assert errors.null_count == 3
    assert columns.to_pylist() == [
        {"member0": {"id": 1}, "member1": None},
        {"member0": None, "member1": {"id": 2, "tags": LONG[:2]}},
        {"member0": None, "member1": {"id": 3, "tags": LONG}},
    ]


def test_defaults_are_the_values_that_they_stand_for_in_columns_too(registry):
    written = _record("R", id="long")
    more = {
        "raw": ("bytes", "\u00ff", b"\xff"),
        "at": (
            {"type": "long", "logicalType": "timestamp-millis"},
            1_000,
            dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        ),
        "day": ({"type": "int", "logicalType": "date"}, 2, dt.date(1970, 1, 3)),
        "list": ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        "map": ({"type": "map", "values": "long"}, {"a": 1}, [("a", 1)]),
        "any": (["string", "long"], "x", {"member0": "x", "member1": None}),
    }
    fields = [{"name": name, "type": kind, "default": at} for name, (kind, at, _) in more.items()]
    wanted = {**written, "fields": [*written["fields"], *fields]}
    serde, client = Avro(wanted, registry=registry.url), SchemaRegistry(registry.url)
    data = Avro(written, registry=client).serialize({"id": 1}, CTX)
    own = serde.serialize({"id": 2}, CTX)
    columns, errors = decoder_for(serde).decode(pa.array([data, own, data]))
    assert errors.null_count == 3
    values = {name: value for name, (_, _, value) in more.items()}
    assert columns.to_pylist() == [{"id": 1, **values}, {"id": 2, **values}, {"id": 1, **values}]


def test_decimals_of_many_digits_have_columns_as_wide_as_arrow_has():
    def money(precision):
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}

    many = Decimal("1234567890" * 7 + ".12")
    serde = Avro(money(72))
    too_many = Avro({**money(74)}).serialize(Decimal("9" * 72 + ".99"), CTX)
    columns, errors = decoder_for(serde).decode(pa.array([serde.serialize(many, CTX), too_many]))
    assert columns.to_pylist() == [many, None]
    assert errors.to_pylist()[1]["message"] == serde.deserialize(too_many, CTX).error
    with pytest.raises(ConfigError, match="at most 76 in a column"):
        decoder_for(Avro(money(77)))
