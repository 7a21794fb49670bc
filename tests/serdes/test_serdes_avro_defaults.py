"""Defaults of Avro fields: the values they stand for, made anew for each record."""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest

from ottla.errors import ConfigError
from ottla.serdes import Avro, SchemaRegistry, SerdeContext
from ottla.testing.registry import EmbeddedRegistry

CTX = SerdeContext("orders")
REFERENCE = uuid.UUID("12345678-1234-5678-1234-567812345678")
FIELDS: dict[str, tuple[Any, Any, Any]] = {
    "bytes": ("bytes", "\u00ff\u0000", b"\xff\0"),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\1"),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u0080", Decimal("-1.28")),
    "fixed decimal": (
        {"type": "fixed", "name": "G", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1},
        "\u0000\u00ff",
        Decimal("25.5"),
    ),
    "timestamp": (
        {"type": "long", "logicalType": "timestamp-millis"},
        1_000,
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
    ),
    "local timestamp": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        1,
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    "date": ({"type": "int", "logicalType": "date"}, 2, datetime.date(1970, 1, 3)),
    "time": ({"type": "int", "logicalType": "time-millis"}, 1_000, datetime.time(0, 0, 1)),
    "uuid": ({"type": "string", "logicalType": "uuid"}, str(REFERENCE), REFERENCE),
    "array": ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    "map": ({"type": "map", "values": {"type": "array", "items": "long"}}, {"a": [1]}, {"a": [1]}),
    "union": ([{"type": "array", "items": "long"}, "null"], [], []),
    "null": (["null", {"type": "array", "items": "long"}], None, None),
    "record": (
        {
            "type": "record",
            "name": "Inner",
            "fields": [
                {"name": "list", "type": {"type": "array", "items": "long"}, "default": [7]},
                {"name": "raw", "type": "bytes", "default": "\u00fe"},
            ],
        },
        {"raw": "\u00fd"},
        {"list": [7], "raw": b"\xfd"},
    ),
    "float": ("float", 0.5, 0.5),
    "infinity": ("double", "-Infinity", float("-inf")),
    "enum": ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", "Y"),
}
WRITTEN: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
WANTED = {
    **WRITTEN,
    "fields": [
        *WRITTEN["fields"],
        *(
            {"name": name.replace(" ", "_"), "type": kind, "default": given}
            for name, (kind, given, _) in FIELDS.items()
        ),
    ],
}
VALUES = {"id": 1, **{name.replace(" ", "_"): value for name, (_, _, value) in FIELDS.items()}}


def _changed(value: Any) -> None:
    """Change everything in a value that can be changed."""
    if isinstance(value, dict):
        for part in list(value.values()):
            _changed(part)
        value["changed"] = True
    elif isinstance(value, list):
        for part in value:
            _changed(part)
        value.append("changed")


def _readers(registry: SchemaRegistry) -> dict[str, tuple[Avro[Any], bytes]]:
    plain, framed = Avro(WRITTEN), Avro(WRITTEN, registry=registry)
    return {
        "writer's schema": (Avro(WANTED, writer_schema=WRITTEN), plain.serialize({"id": 1}, CTX) or b""),
        "registry": (Avro(WANTED, registry=registry), framed.serialize({"id": 1}, CTX) or b""),
        "what was left out": (Avro(WANTED), Avro(WANTED).serialize({"id": 1}, CTX) or b""),
    }


@pytest.mark.parametrize("way", ["writer's schema", "registry", "what was left out"])
def test_a_default_is_the_value_that_it_stands_for_and_belongs_to_one_record(way: str) -> None:
    with EmbeddedRegistry() as server:
        reader, data = _readers(SchemaRegistry(server.url))[way]
        first, second = reader.deserialize_many([data, data], CTX)
        assert first == second == VALUES
        _changed(first)
        assert second == VALUES
        assert reader.deserialize(data, CTX) == VALUES


def test_a_type_that_is_built_of_defaults_accepts_them() -> None:
    @dataclasses.dataclass
    class R:
        id: int
        bytes: bytes
        decimal: Decimal
        timestamp: datetime.datetime
        date: datetime.date
        array: list[bytes]

    wanted = {**WRITTEN, "fields": [field for field in WANTED["fields"] if field["name"] in R.__annotations__]}
    data = Avro(WRITTEN).serialize({"id": 1}, CTX)
    found = Avro(wanted, type=R, writer_schema=WRITTEN).deserialize(data, CTX)
    assert found == R(*(VALUES[field] for field in R.__annotations__))


def _with(field: dict[str, Any]) -> dict[str, Any]:
    return {**WRITTEN, "fields": [{"name": "x", **field}]}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ("int", 2**31),
        ("long", 2**63),
        ("long", True),
        ({"type": "array", "items": "long"}, ["a"]),
        ({"type": "map", "values": "long"}, {"a": None}),
        ({"type": "string", "logicalType": "uuid"}, "no"),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "Z"),
        ({"type": "record", "name": "I", "fields": [{"name": "a", "type": "long"}]}, {}),
        ({"type": "record", "name": "I", "fields": []}, {"b": 1}),
        (["null", "long"], "a"),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_refused_at_once(kind: Any, default: Any) -> None:
    with pytest.raises(ConfigError, match=r"R\.x: found the default|must match"):
        Avro(_with({"type": kind, "default": default}))


def test_what_a_writers_schema_has_for_defaults_is_of_no_concern() -> None:
    with EmbeddedRegistry() as server:
        registry = SchemaRegistry(server.url)
        text = json.dumps(_with({"type": "long", "default": "0"}))  # registries in Java once took that
        registry._http.request = lambda *given: {"schema": text, "id": 3}  # type: ignore[method-assign]
        serde: Avro[Any] = Avro(_with({"type": "long"}), registry=registry)
        assert serde.deserialize(b"\0\0\0\0\3\x0a", CTX) == {"x": 5}


def test_defaults_within_a_recursive_schema_are_made_anew() -> None:
    def tree(more: list[Any]) -> dict[str, Any]:
        fields = [{"name": "next", "type": ["null", "Tree"]}, *more]
        return {"type": "record", "name": "Tree", "fields": fields}

    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]}
    data = Avro(tree([])).serialize({"next": {"next": None}}, CTX)
    reader = Avro(tree([tags]), writer_schema=tree([]))
    wanted = {"tags": ["new"], "next": {"tags": ["new"], "next": None}}
    first = reader.deserialize(data, CTX)
    assert first == wanted
    _changed(first)
    assert reader.deserialize(data, CTX) == wanted
