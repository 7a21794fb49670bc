"""Unions of Avro: a value is written as what it is, and read back as that; what could be several is refused."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import SerializationError
from ottla.records import Malformed
from ottla.serdes import Avro, SchemaRegistry, SerdeContext
from ottla.serdes.any_schema import RegistryValues, avro_encoder
from ottla.testing.registry import EmbeddedRegistry

CTX = SerdeContext("orders")
TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
NAIVE = datetime.datetime(2026, 1, 2, 3, 4, 5)
AWARE = NAIVE.replace(tzinfo=datetime.UTC)


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    listed = [{"name": field[0], "type": field[1], **(field[2] if len(field) > 2 else {})} for field in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


PLACED, CANCELLED = record("shop.Placed", ("id", "long")), record("shop.Cancelled", ("id", "long"))


@dataclasses.dataclass
class Placed:
    id: int


@dataclasses.dataclass
class Cancelled:
    id: int

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("a negative id")


@dataclasses.dataclass
class Returned(Cancelled):
    pass


@dataclasses.dataclass
class Other:
    id: int


class Product(pydantic.BaseModel):
    number: int = pydantic.Field(alias="id")


class Bundle(pydantic.BaseModel):
    number: pydantic.NonNegativeInt = pydantic.Field(alias="id")


class Cart(pydantic.BaseModel):
    first: Product | Bundle = pydantic.Field(alias="item")
    others: list[Product | Bundle] = []
    named: dict[str, Product | Bundle | None] = {}


CART = record(
    "Cart",
    ("item", [record("Product", ("id", "long")), record("Bundle", ("id", "long"))]),
    ("others", {"type": "array", "items": ["Product", "Bundle"]}),
    ("named", {"type": "map", "values": ["null", "Product", "Bundle"]}),
)


def there_and_back(schema: Any, value: Any, **options: Any) -> Any:
    serde = Avro(schema, **options)
    return serde.deserialize(serde.serialize(value, CTX), CTX)


def test_the_branch_is_that_of_the_values_class_and_comes_back_with_its_name() -> None:
    schema = [PLACED, CANCELLED]
    for value in (Placed(1), Cancelled(1)):
        assert there_and_back(schema, value) == (f"shop.{type(value).__name__}", {"id": 1})
        assert there_and_back(schema, value, type=Placed | Cancelled) == value
        assert there_and_back(Placed | Cancelled, value) == value
    assert there_and_back(schema, Returned(2)) == ("shop.Cancelled", {"id": 2})
    assert there_and_back(schema, ("shop.Cancelled", {"id": 3})) == ("shop.Cancelled", {"id": 3})
    assert there_and_back(schema, ("shop.Cancelled", Other(4))) == ("shop.Cancelled", {"id": 4})


def test_what_is_read_can_be_written_again() -> None:
    serde = Avro(CART)
    data = serde.serialize(Cart(item=Bundle(id=1), others=[Product(id=2)]), CTX)  # type: ignore[call-arg]
    read = serde.deserialize(data, CTX)
    assert read == {"item": ("Bundle", {"id": 1}), "others": [("Product", {"id": 2})], "named": {}}
    assert serde.serialize(read, CTX) == data


@pytest.mark.parametrize("value", [{"id": 1}, Other(1)])
def test_a_value_that_could_be_several_records_is_refused_with_the_way_out(value: Any) -> None:
    with pytest.raises(SerializationError, match=r'shop.Placed or shop.Cancelled; say which: \("shop.Placed", value\)'):
        Avro([PLACED, CANCELLED]).serialize(value, CTX)
    with pytest.raises(SerializationError, match=r"the value could be Product or Bundle; .* - at `\$.others\[1\]`"):
        Avro(CART).serialize(
            {"item": ("Product", {"id": 1}), "others": [("Product", {"id": 1}), {"id": 2}], "named": {}}, CTX
        )


def test_a_record_of_another_shape_needs_no_name() -> None:
    schema = [record("A", ("a", "long")), record("B", ("a", "long"), ("b", "string", {"default": "x"}))]
    assert there_and_back(schema, {"a": 1, "b": "c"}) == ("B", {"a": 1, "b": "c"})
    with pytest.raises(SerializationError, match="could be A or B"):
        Avro(schema).serialize({"a": 1}, CTX)
    with pytest.raises(SerializationError, match="A has no field c; B: B has no field c"):
        Avro(schema).serialize({"a": 1, "c": 1}, CTX)


def test_a_map_and_a_record_are_not_taken_for_each_other() -> None:
    schema = [{"type": "map", "values": "long"}, record("A", ("a", "long"))]
    assert there_and_back(schema, {"b": 1}) == {"b": 1}
    with pytest.raises(SerializationError, match="could be map or A"):
        Avro(schema).serialize({"a": 1}, CTX)
    for named in (("map", {"a": 1}), ("A", {"a": 1})):
        assert there_and_back(schema, named) == {"a": 1}
    assert Avro(schema).serialize(("A", {"a": 1}), CTX) == b"\x02\x02"


def test_records_of_one_name_in_two_namespaces_are_told_apart_by_the_full_name() -> None:
    schema = [record("a.Event", ("id", "long")), record("b.Event", ("id", "long"))]
    assert there_and_back(schema, ("b.Event", {"id": 1})) == ("b.Event", {"id": 1})
    event = dataclasses.make_dataclass("Event", [("id", int)])
    with pytest.raises(SerializationError, match=r"a Event could be a.Event or b.Event"):
        Avro(schema).serialize(event(1), CTX)


def test_fields_of_pydantic_models_are_of_the_class_that_was_written() -> None:
    cart = Cart(item=Bundle(id=1), others=[Product(id=2), Bundle(id=3)], named={"a": Bundle(id=4), "b": None})  # type: ignore[call-arg]
    assert there_and_back(CART, cart, type=Cart) == cart
    assert there_and_back(Cart, cart) == cart


def test_a_rule_of_a_class_of_a_union_makes_the_record_invalid() -> None:
    data = Avro([PLACED, CANCELLED]).serialize(("shop.Cancelled", {"id": -1}), CTX)
    found = Avro([PLACED, CANCELLED], type=Placed | Cancelled).deserialize(data, CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("invalid", "ValueError")
    assert found.error == "not a valid Cancelled: a negative id"


def test_a_type_that_knows_no_class_of_the_name_gets_the_plain_record() -> None:
    @dataclasses.dataclass
    class Envelope:
        event: dict[str, int]

    schema = record("Envelope", ("event", [PLACED, CANCELLED]))
    data = Avro(schema).serialize({"event": Cancelled(1)}, CTX)
    assert Avro(schema, type=Envelope).deserialize(data, CTX) == Envelope({"id": 1})


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with EmbeddedRegistry() as server:
        client = SchemaRegistry(server.url)
        client.set_compatibility("NONE")
        yield client


def test_a_union_that_grew_is_named_by_the_readers_schema(registry: SchemaRegistry) -> None:
    def holder(kind: Any) -> dict[str, Any]:
        return record("Holder", ("event", kind), ("more", {"type": "array", "items": "long"}, {"default": []}))

    one, several = holder(PLACED), holder(["null", PLACED, CANCELLED])
    from_one = Avro(one, registry=registry).serialize({"event": {"id": 1}}, CTX)
    from_several = Avro(several, registry=registry).serialize({"event": Placed(2)}, CTX)
    from_null = Avro(several, registry=registry).serialize({"event": None}, CTX)
    assert Avro(several, registry=registry).deserialize(from_one, CTX) == {
        "event": ("shop.Placed", {"id": 1}),
        "more": [],
    }
    assert Avro(several, registry=registry).deserialize(from_several, CTX) == {
        "event": ("shop.Placed", {"id": 2}),
        "more": [],
    }
    assert Avro(one, registry=registry).deserialize(from_several, CTX) == {"event": {"id": 2}, "more": []}
    with_more = holder(["null", PLACED, CANCELLED])
    with_more["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
    for data, event in ((from_several, ("shop.Placed", {"id": 2})), (from_null, None)):
        assert Avro(with_more, registry=registry).deserialize(data, CTX) == {"event": event, "more": [], "note": None}


NESTED = record("N", ("at", TIMESTAMP), ("next", ["null", "N"]))


def test_namesakes_are_told_apart_when_a_schema_is_resolved() -> None:
    def holder(more: Any) -> dict[str, Any]:
        first = record("a.Event", ("id", "long"), *more, aliases=["Old"])
        return record("Holder", ("one", [first, record("b.Event", ("id", "long"), *more)]), ("other", "b.Event"))

    tags = ("tags", {"type": "array", "items": "string"}, {"default": []})
    written, wanted = Avro(holder([])), Avro(holder([tags]), writer_schema=holder([]))
    for name in ("a.Event", "b.Event"):
        data = written.serialize({"one": (name, {"id": 1}), "other": {"id": 2}}, CTX)
        assert wanted.deserialize(data, CTX) == {"one": (name, {"id": 1, "tags": []}), "other": {"id": 2, "tags": []}}
    old = record(
        "Holder", ("one", [record("a.Old", ("id", "long")), record("b.Event", ("id", "long"))]), ("other", "b.Event")
    )
    data = Avro(old).serialize({"one": ("a.Old", {"id": 1}), "other": {"id": 2}}, CTX)
    found = Avro(holder([tags]), writer_schema=old).deserialize(data, CTX)
    assert found["one"] == ("a.Event", {"id": 1, "tags": []})


class Color(enum.Enum):
    RED = "RED"


class Signal(enum.Enum):
    RED = "RED"


@pytest.mark.parametrize(
    ("schema", "value", "written"),
    [
        (["double", "long"], 2**53 + 1, 2**53 + 1),
        (["double", "long"], 5, 5),
        (["double", "long"], 1.5, 1.5),
        (["float", "double"], 0.1, 0.1),
        (["int", "double", "string"], 2**40, float(2**40)),
        (["null", TIMESTAMP, "string"], AWARE, AWARE),
        ([TIMESTAMP, "string"], "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        (["string", MONEY], Decimal("1.5"), Decimal("1.50")),
        (["bytes", "string"], b"a", b"a"),
        ([{"type": "fixed", "name": "F", "size": 2}, "bytes"], b"abc", b"abc"),
        (["string", {"type": "enum", "name": "Color", "symbols": ["RED"]}], "RED", "RED"),
        (["string", {"type": "string", "logicalType": "uuid"}][1:], uuid.UUID(int=5), uuid.UUID(int=5)),
        (["boolean", "long"], True, True),
        ([{"type": "array", "items": ["double", "long"]}, "null"], [2**53 + 1, 0.5], [2**53 + 1, 0.5]),
        (["null", "long", {"type": "map", "values": MONEY}], {"a": Decimal("1")}, {"a": Decimal("1.00")}),
    ],
)
def test_a_value_is_written_as_its_own_type(schema: Any, value: Any, written: Any) -> None:
    found = there_and_back(record("R", ("x", schema)), {"x": value})["x"]
    assert (found, type(found)) == (written, type(written))


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ([TIMESTAMP, "string"], NAIVE, "with a timezone"),
        (["string", "bytes", {"type": "array", "items": TIMESTAMP}], [NAIVE], r"array\[0\]: .*with a timezone"),
        ([record("A", ("at", TIMESTAMP)), record("B", ("at", ["null", TIMESTAMP]))], ("B", {"at": NAIVE}), "timezone"),
        ([LOCAL, "string"], AWARE, "no timezone"),
        (LOCAL, AWARE, "no timezone"),
        (
            record("N", ("at", TIMESTAMP), ("next", ["null", "N"])),
            {"at": AWARE, "next": {"at": NAIVE, "next": None}},
            "timezone",
        ),
        (["double", "string", "bytes"], 2**53 + 1, "cannot be held exactly"),
        ([TIMESTAMP, "double"], 5, "could be long or double"),
        (["string", "bytes"], 5, "found int, wanted one of string, bytes"),
        (["string", "bytes"], None, "found None, wanted one of"),
        (["null", "double", "long"], True, "found bool"),
    ],
)
def test_a_value_that_no_branch_holds_as_it_is_is_refused(schema: Any, value: Any, wanted: str) -> None:
    with pytest.raises(SerializationError, match=wanted):
        Avro(record("R", ("x", schema))).serialize({"x": value}, CTX)


def test_symbols_of_two_enums_are_told_apart_by_their_class() -> None:
    enums = [{"type": "enum", "name": name, "symbols": ["RED"]} for name in ("Color", "Signal")]
    holder = dataclasses.make_dataclass("R", [("x", Any)])
    assert Avro(record("R", ("x", enums))).serialize({"x": ("Signal", "RED")}, CTX) == b"\x02\x00"
    with pytest.raises(SerializationError, match="could be Color or Signal"):
        Avro(record("R", ("x", enums))).serialize({"x": "RED"}, CTX)
    assert Avro(record("R", ("x", enums))).serialize(holder(Signal.RED), CTX) == b"\x02\x00"


@pytest.mark.parametrize(
    "value", ["1E+10", "1E+4", "10000", "99999.9", "1.005", "-1E+4", "NaN", "Infinity", "1E+999999", "1E-999999"]
)
@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: ["null", kind], lambda kind: ["string", kind]])
@pytest.mark.parametrize("kind", [MONEY, {**MONEY, "type": "fixed", "name": "F", "size": 3}])
def test_a_decimal_is_held_to_its_digits(value: str, wrap: Any, kind: Any) -> None:
    with pytest.raises(SerializationError, match=r"wanted (at most|a number)"):
        Avro(record("R", ("x", wrap(kind)))).serialize({"x": Decimal(value)}, CTX)


@pytest.mark.parametrize("value", ["0", "0E+99999999", "-0.00", "9999.99", "1E+3", "-0.01"])
def test_a_decimal_of_few_digits_is_written_whatever_its_exponent(value: str) -> None:
    number = Decimal(value)
    found = there_and_back(MONEY, number)
    assert found == number
    assert found.as_tuple().exponent == -2


@given(st.integers(0, 10**80), st.integers(0, 40), st.booleans())
def test_decimals_of_any_number_of_digits_come_back(unscaled: int, scale: int, is_negative: bool) -> None:
    digits = tuple(map(int, str(unscaled)))
    number = Decimal((int(is_negative), digits, -scale))
    schema = {"type": "bytes", "logicalType": "decimal", "precision": len(digits) + 40, "scale": scale}
    assert there_and_back(schema, number) == number


@pytest.mark.parametrize("is_recursive", [False, True])
@pytest.mark.parametrize("kind", [MONEY, {**MONEY, "type": "fixed", "name": "F", "size": 3}])
def test_a_decimal_of_more_digits_than_its_type_is_refused_and_not_rounded(kind: Any, is_recursive: bool) -> None:
    more = [("next", ["null", "R"])] if is_recursive else []
    schema = record("R", ("x", kind), *more)
    plain = {key: value for key, value in kind.items() if key != "logicalType"}
    as_bytes = Avro(record("R", ("x", plain), *more))
    for unscaled, is_good in ((999_999, True), (-999_999, True), (1_000_000, False), (-1_000_001, False)):
        raw = unscaled.to_bytes(3, "big", signed=True)
        data = as_bytes.serialize({"x": raw, **({"next": None} if is_recursive else {})}, CTX)
        found = Avro(schema).deserialize(data, CTX)
        if is_good:
            assert found["x"] == Decimal(unscaled).scaleb(-2)
        else:
            assert isinstance(found, Malformed)
            assert "more digits than its precision of 6" in found.error


def test_a_decimal_of_a_million_digits_costs_no_more_than_its_bytes() -> None:
    data = Avro("bytes").serialize(b"\x7f" * 1_000_000, CTX)
    began = time.process_time()
    assert isinstance(Avro(MONEY).deserialize(data, CTX), Malformed)
    assert time.process_time() - began < 5


def test_tools_write_and_print_a_record_of_a_union_as_avros_json(registry: SchemaRegistry) -> None:
    schema_id = registry.register("orders-value", json.dumps(CART))
    values = RegistryValues(registry)
    encode = values.encoder(registry.version("orders-value"))
    shown = {"item": {"Bundle": {"id": 1}}, "others": [{"Product": {"id": 2}}], "named": {"a": {"Bundle": {"id": 3}}}}
    data = encode(shown)
    assert int.from_bytes(data[1:5], "big") == schema_id
    assert values.decode(data) == ("AVRO", shown)
    with pytest.raises(ValueError, match="could be Product or Bundle"):
        encode({**shown, "item": {"id": 1}})


def test_tools_take_times_of_unions_as_text_and_lose_no_field() -> None:
    encode = avro_encoder(record("R", ("at", ["null", TIMESTAMP, "long", record("A", ("n", TIMESTAMP))])))
    assert encode({"at": {"n": "2026-01-02T03:04:05Z"}}, b"")[:1] == b"\x06"
    with pytest.raises(ValueError, match="the schema has no field note"):
        encode({"at": None, "note": 1}, b"")


def test_a_serde_that_was_pickled_reads_decimals_and_unions_where_it_is_made_again() -> None:
    schema = record("R", ("x", MONEY), ("y", [PLACED, CANCELLED]))
    serde = Avro(schema, writer_schema=schema)
    data = serde.serialize({"x": Decimal("1.50"), "y": Cancelled(1)}, CTX)
    program = (
        "import pickle, sys; data, serde = pickle.loads(sys.stdin.buffer.read());"
        "from ottla.serdes import SerdeContext; print(serde.deserialize(data, SerdeContext('t')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((data, serde)), capture_output=True, check=True, timeout=120
    )
    assert done.stdout.decode().strip() == "{'x': Decimal('1.50'), 'y': ('shop.Cancelled', {'id': 1})}"
    with pytest.raises(TypeError, match="give a function that makes it"):
        pickle.dumps(Avro(schema, registry="http://127.0.0.1:9"))
