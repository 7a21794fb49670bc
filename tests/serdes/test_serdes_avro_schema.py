from __future__ import annotations

import dataclasses
import datetime
import uuid
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import fastavro
import pytest

from ottla.errors import ConfigError
from ottla.serdes import Avro, AvroType, SerdeContext, decimal
from ottla.serdes.avro_schema import derive_schema

Cents = NewType("Cents", int)
REFERENCE = uuid.UUID(int=1)
TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("type", "schema"),
    [
        (int, "long"),
        (float, "double"),
        (bool, "boolean"),
        (str, "string"),
        (bytes, "bytes"),
        (Cents, "long"),
        (Literal["a", "b"], "string"),
        (Literal[1, 2], "long"),
        (int | None, ["null", "long"]),
        (int | str | None, ["null", "long", "string"]),
        (datetime.datetime, TIMESTAMP),
        (datetime.date, {"type": "int", "logicalType": "date"}),
        (datetime.time, {"type": "long", "logicalType": "time-micros"}),
        (uuid.UUID, {"type": "string", "logicalType": "uuid"}),
        (list[int], {"type": "array", "items": "long"}),
        (set[int], {"type": "array", "items": "long"}),
        (tuple[int, ...], {"type": "array", "items": "long"}),
        (dict[str, list[float]], {"type": "map", "values": {"type": "array", "items": "double"}}),
        (Annotated[Decimal, decimal(9, 2)], {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        (Annotated[int, AvroType("int")], "int"),
    ],
)
def test_each_python_type_has_its_avro_type(type: Any, schema: Any) -> None:
    assert derive_schema(type) == schema
    assert fastavro.parse_schema(schema)


def test_a_dataclass_becomes_a_record_with_defaults_in_their_json_form(models: SimpleNamespace) -> None:
    schema = derive_schema(models.Order)
    fields = {field["name"]: field for field in schema["fields"]}
    assert list(fields) == [field.name for field in dataclasses.fields(models.Order)]
    assert "default" not in fields["id"]
    assert fields["due"] == {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None}
    assert fields["lines"]["default"] == []
    assert fields["status"]["type"] == {"type": "enum", "name": "Status", "symbols": ["new", "paid"]}
    assert fields["status"]["default"] == "new"
    assert (fields["route"]["type"], fields["route"]["default"]) == ("string", "by sea")
    assert (fields["level"]["type"], fields["level"]["default"]) == ("long", 1)
    assert fields["blob"]["default"] == "ÿ\x00"
    assert fields["bill_to"]["type"] == ["null", "Address"]  # written out at ship_to, named here
    assert fields["shard"]["type"] == "int"


def test_a_default_other_than_none_puts_its_branch_first() -> None:
    @dataclasses.dataclass
    class Row:
        a: int | None = 5

    assert derive_schema(Row)["fields"] == [{"name": "a", "type": ["long", "null"], "default": 5}]


def test_logical_defaults_are_written_in_the_underlying_type_and_read_back() -> None:
    @dataclasses.dataclass
    class Row:
        at: datetime.datetime = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
        day: datetime.date = datetime.date(1970, 1, 3)
        time: datetime.time = datetime.time(0, 0, 1)
        price: Annotated[Decimal, decimal(9, 2)] = Decimal("-1.28")
        ref: uuid.UUID = REFERENCE

    schema = derive_schema(Row)
    assert [field["default"] for field in schema["fields"]] == [1000, 2, 1_000_000, "\x80", str(REFERENCE)]
    ctx = SerdeContext("t")
    assert Avro(Row).deserialize(Avro(Row).serialize(Row(), ctx), ctx) == Row()


def test_a_namespace_is_part_of_every_name(models: SimpleNamespace) -> None:
    schema = derive_schema(models.Order, namespace="com.shop")
    assert schema["namespace"] == "com.shop"
    assert next(f for f in schema["fields"] if f["name"] == "bill_to")["type"] == ["null", "com.shop.Address"]
    assert fastavro.parse_schema(schema)["name"] == "com.shop.Order"


def test_an_optional_key_of_a_typed_dict_is_its_own_type() -> None:
    class Row(TypedDict):
        a: int
        b: NotRequired[str]

    assert [field["type"] for field in derive_schema(Row)["fields"]] == ["long", "string"]


@dataclasses.dataclass
class _Named:
    a: int


def _other_class_of_the_same_name() -> type:
    return dataclasses.make_dataclass("_Named", [("b", str)])


@pytest.mark.parametrize(
    ("type", "wanted"),
    [
        (Any, "Any has no Avro type"),
        (complex, "complex has no Avro type: name one with Annotated"),
        (Decimal, r"Decimal has no Avro type: say how many digits: Annotated\[Decimal, decimal\(precision, scale\)\]"),
        (dict[int, str], "the keys of an Avro map are strings"),
        (tuple[int, str], "an Avro array has one item type"),
        (NamedTuple("Row", [("a", int)]), "make it a dataclass"),
        (Literal[1, "a"], "neither all strings nor all integers"),
        (dataclasses.make_dataclass("Größe", [("a", int)]), "is not an Avro name"),
        (
            dataclasses.make_dataclass("Row", [("inner", dict[str, complex])]),
            r"Row.inner\[…\]: complex has no Avro type",
        ),
        (list[_Named | dataclasses.make_dataclass("Other", [("a", int)])], "make them pydantic models"),
        (
            dataclasses.make_dataclass("Row", [("a", _Named), ("b", _other_class_of_the_same_name())]),
            "two different classes",
        ),
    ],
)
def test_a_type_without_an_avro_type_is_refused_with_its_place_and_advice(type: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        derive_schema(type)


@pytest.mark.parametrize(
    ("type", "default", "wanted"),
    [
        (Annotated[Decimal, decimal(6, 2)], Decimal("1.005"), "at most 2 digits behind the point"),
        (Annotated[Decimal, decimal(6, 2)], Decimal("1E+5"), "at most 4 digits before the point"),
        (Annotated[Decimal, decimal(6, 2)], Decimal("NaN"), "wanted a number"),
        (float, float("nan"), "a schema is JSON"),
        (list[float], [float("inf")], "a schema is JSON"),
        (datetime.datetime, datetime.datetime(2020, 1, 1), "with a time zone"),
    ],
)
def test_a_default_that_a_schema_cannot_have_is_refused_with_its_place(type: Any, default: Any, wanted: str) -> None:
    row = dataclasses.make_dataclass("Row", [("x", type, dataclasses.field(default_factory=lambda: default))])
    with pytest.raises(ConfigError, match=rf"Row\.x: found the default .*{wanted}"):
        derive_schema(row)


def test_a_default_of_many_digits_keeps_them_all() -> None:
    many = Decimal("12345678901234567890123456789012345678901234567890.12")
    row = dataclasses.make_dataclass("Row", [("x", Annotated[Decimal, decimal(60, 2)], many)])
    ctx = SerdeContext("t")
    none: Any = {"type": "record", "name": "Row", "fields": []}
    assert Avro(derive_schema(row), writer_schema=none).deserialize(b"", ctx) == {"x": many}
    assert Avro(row).deserialize(Avro(row).serialize(row(), ctx), ctx) == row()


def test_the_branch_of_a_default_comes_first() -> None:
    row = dataclasses.make_dataclass("Row", [("x", int | str | None, "a")])
    assert derive_schema(row)["fields"] == [{"name": "x", "type": ["string", "long", "null"], "default": "a"}]
