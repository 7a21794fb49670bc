from __future__ import annotations

import dataclasses
import datetime
import io
import json
import subprocess
import sys
import time
import uuid
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError, SerializationError
from ottla.records import Malformed
from ottla.serdes import Avro, SerdeContext
from ottla.serdes.avro_codec import parse

CTX = SerdeContext("orders")

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "small", "type": "int", "default": 0},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "points", "type": {"type": "array", "items": "float"}},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}
readings = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(),
        "at": st.datetimes(
            min_value=datetime.datetime(1900, 1, 1),
            max_value=datetime.datetime(2200, 1, 1),
            timezones=st.just(datetime.UTC),
        ).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "small": st.integers(-(2**31), 2**31 - 1),
        "amount": st.none() | st.floats(allow_nan=False),
        "code": st.binary(min_size=2, max_size=2),
        "kind": st.sampled_from(["A", "B"]),
        "points": st.lists(st.floats(width=32, allow_nan=False)),
        "labels": st.dictionaries(st.text(), st.text()),
    }
)
AT = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
READING = {
    "id": 1,
    "name": "n",
    "at": AT,
    "small": 1,
    "amount": None,
    "code": b"ab",
    "kind": "A",
    "points": [],
    "labels": {},
}
SERDE: Avro[dict[str, Any]] = Avro(SCHEMA)


@given(readings)
def test_any_value_of_a_schema_comes_back_and_is_the_encoding_fastavro_writes(reading: dict[str, Any]) -> None:
    data = SERDE.serialize(reading, CTX)
    assert data is not None
    assert SERDE.deserialize(data, CTX) == reading
    plain = io.BytesIO()
    fastavro.schemaless_writer(plain, fastavro.parse_schema(SCHEMA), reading)
    assert data == plain.getvalue()


@given(readings, st.data())
def test_bytes_cut_off_anywhere_are_malformed(reading: dict[str, Any], data: st.DataObject) -> None:
    whole = SERDE.serialize(reading, CTX)
    assert whole is not None
    cut = data.draw(st.integers(0, len(whole) - 1))
    found = SERDE.deserialize(whole[:cut], CTX)
    assert isinstance(found, Malformed)
    assert (found.raw, found.kind) == (whole[:cut], "malformed")
    assert f"{cut} bytes end before the value does" in found.error


@given(readings, st.binary(min_size=1))
def test_bytes_left_over_are_malformed(reading: dict[str, Any], extra: bytes) -> None:
    data = SERDE.serialize(reading, CTX)
    assert data is not None
    found = SERDE.deserialize(data + extra, CTX)
    assert isinstance(found, Malformed)
    assert f"the value ends after {len(data)} of {len(data) + len(extra)} bytes" in found.error


@given(st.lists(st.binary()))
def test_no_bytes_make_it_raise_and_a_batch_answers_as_one_by_one(data: list[bytes]) -> None:
    assert repr(SERDE.deserialize_many(data, CTX)) == repr([SERDE.deserialize(item, CTX) for item in data])


def test_a_class_with_every_kind_of_field_comes_back_equal(models: SimpleNamespace, order: Any) -> None:
    serde = Avro(models.Order)
    data = serde.serialize(order, CTX)
    assert serde.deserialize(data, CTX) == order
    assert serde.deserialize_many([data, None], CTX) == [order, None]
    minimal = models.Order(id=1, customer="", placed_at=AT, total=0.0, ship_to=models.Address("x"))
    assert serde.deserialize(serde.serialize(minimal, CTX), CTX) == minimal


@pytest.mark.parametrize("name", ["Flat", "FlatStruct", "FlatDict", "FlatModel"])
def test_every_kind_of_class_decodes_to_itself(models: SimpleNamespace, name: str) -> None:
    model = getattr(models, name)
    value = model(id=1, name="a", amount=2.5)
    serde = Avro(model)
    data = serde.serialize(value, CTX)
    assert serde.deserialize(data, CTX) == value
    assert type(serde.deserialize(data, CTX)) is (dict if name == "FlatDict" else model)


def test_a_rule_of_post_init_is_invalid_under_the_name_of_its_own_error(models: SimpleNamespace) -> None:
    data = Avro({"type": "record", "name": "Flat", "fields": Avro(models.Flat).schema["fields"]}).serialize(
        {"id": -5, "name": "a", "amount": None}, CTX
    )
    for found in (Avro(models.Flat).deserialize(data, CTX), Avro(models.Flat).deserialize_many([data], CTX)[0]):
        assert isinstance(found, Malformed)
        assert (found.kind, found.error_type, found.raw) == ("invalid", "ValueError", data)
        assert found.error == "not a valid Flat: id is negative: -5"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"id": "1"}, r"got `str` - at `\$.id`"),
        ({"id": 1.7}, r"got `float` - at `\$.id`"),  # fastavro alone writes 1
        ({"id": True}, r"got `bool` - at `\$.id`"),
        ({"id": 2**63}, r"`\$.id`"),
        ({"small": 2**31}, r"`\$.small`"),
        ({"name": None}, r"`\$.name`"),
        (
            {"at": datetime.datetime(2026, 1, 1)},
            r"timezone component - at `\$.at`",
        ),  # fastavro alone assumes local time
        ({"at": "yesterday"}, r"\$.at"),
        ({"amount": "much"}, r"`\$.amount`"),
        ({"code": b"abc"}, r"`\$.code`"),
        ({"kind": "C"}, r"`\$.kind`"),
        ({"points": [1.0, "x"]}, r"`\$.points\[1\]`"),
        ({"labels": {"a": 1}}, r"`\$.labels\[...\]`"),
        ({"nmae": "typo"}, "nmae"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_field(change: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SerializationError, match=f"orders value: dict does not fit the Avro schema: .*{wanted}"):
        SERDE.serialize(READING | change, CTX)


def test_a_missing_field_is_refused_unless_it_has_a_default() -> None:
    without_default = {key: value for key, value in READING.items() if key != "small"}
    read_back = SERDE.deserialize(SERDE.serialize(without_default, CTX), CTX)
    assert read_back == READING | {"small": 0}
    with pytest.raises(SerializationError, match="`name`"):
        SERDE.serialize({"id": 1}, CTX)


def test_a_reader_of_a_later_class_takes_its_defaults_and_drops_what_it_does_not_have() -> None:
    @dataclasses.dataclass
    class Old:
        id: int
        gone: str

    @dataclasses.dataclass
    class New:
        id: int
        since: datetime.date = datetime.date(2026, 1, 1)
        tags: list[str] = dataclasses.field(default_factory=lambda: ["none"])

    data = Avro(Old).serialize(Old(1, "x"), CTX)
    found = Avro(New, writer_schema=Avro(Old).schema).deserialize(data, CTX)
    assert found == New(1, datetime.date(2026, 1, 1), ["none"])


def test_a_given_readers_schema_resolves_by_avros_rules() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "string"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "count", "aliases": ["n"], "type": "double"},
            {"name": "unit", "type": "string", "default": "kg"},
        ],
    }
    data = Avro(old).serialize({"n": 3, "gone": "x"}, CTX)
    assert Avro(new, writer_schema=old).deserialize(data, CTX) == {"count": 3.0, "unit": "kg"}


def test_bytes_that_cannot_be_resolved_to_the_readers_schema_are_invalid_not_malformed() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "must", "type": "string"}]}
    found = Avro(new, writer_schema=old).deserialize(b"\x02", CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("invalid", "SchemaResolutionError")


def test_the_error_hints_at_what_the_bytes_look_like() -> None:
    framed = SERDE.deserialize(b"\0\0\0\0\x07\x02\x02n", CTX)
    as_json = SERDE.deserialize(b'{"id": 1}', CTX)
    assert isinstance(framed, Malformed)
    assert isinstance(as_json, Malformed)
    assert "registry wire format, schema id 7" in framed.error
    assert "looks like JSON" in as_json.error


def test_a_schema_may_be_text_or_a_file_or_a_type_and_means_the_same(tmp_path: Path, models: SimpleNamespace) -> None:
    file = tmp_path / "flat.avsc"
    schema = Avro(models.Flat).schema
    file.write_text(json.dumps(schema), encoding="utf-8")
    value = models.Flat(1, "a", 2.0)
    data = Avro(models.Flat).serialize(value, CTX)
    for same in (Avro(schema), Avro(json.dumps(schema)), Avro(file), Avro(str(file))):
        assert same.serialize(value, CTX) == data
        assert same.deserialize(data, CTX) == {"id": 1, "name": "a", "amount": 2.0}
    assert Avro(file, type=models.Flat).deserialize(data, CTX) == value


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ("missing.avsc", "missing.avsc.*No such file"),
        ("{not json", "not JSON"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "strin"}]}, "not an Avro schema: .*strin"),
        ({"type": "array", "items": "null"}, "array of null"),
    ],
)
def test_what_is_not_a_schema_is_a_config_error(schema: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        Avro(schema)


def test_an_array_of_nothing_is_refused_through_names_and_nesting() -> None:
    empty = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}
    holder = {
        "type": "record",
        "name": "Holder",
        "fields": [{"name": "one", "type": empty}, {"name": "many", "type": {"type": "array", "items": "Empty"}}],
    }
    with pytest.raises(ConfigError, match="array of Empty"):
        Avro(holder)
    assert Avro({"type": "array", "items": ["null", "int"]}).deserialize(b"\x02\x00\x00", CTX) == [None]


def _doubling(levels: int, leaf: str) -> dict[str, Any]:
    """Each record holds the one before it twice, the second time by its name."""
    schema: dict[str, Any] = {"type": "record", "name": "N0", "fields": [{"name": "x", "type": leaf}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"N{level - 1}"}]
        schema = {"type": "record", "name": f"N{level}", "fields": fields}
    return schema


def test_types_that_use_each_other_many_times_are_followed_once() -> None:
    began = time.process_time()
    serde = Avro(_doubling(40, "long"))
    assert isinstance(serde.deserialize(b"\2" * 1_000, CTX), Malformed)
    with pytest.raises(ConfigError, match="more than 10,000 values in a N"):
        Avro(_doubling(40, "null"))
    assert time.process_time() - began < 10


def test_records_that_contain_each_other_are_recursive_and_others_are_not() -> None:
    def record(name: str, **fields: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}

    for schema, wanted in (
        (record("A", b=record("B", a=["null", "A"])), True),
        (record("A", b=record("B", c=record("C", x="long")), c="C", d={"type": "array", "items": "B"}), False),
        ({"type": "map", "values": record("A", more={"type": "array", "items": "A"})}, True),
        ([record("A", x="long"), record("B", a="A")], False),
    ):
        assert parse(schema).is_recursive is wanted  # type: ignore[arg-type]


def test_deeply_nested_bytes_of_a_recursive_schema_do_not_end_the_process() -> None:
    # In a child process, because the failure this guards against is a crash of the interpreter.
    program = """
import os, sys
from ottla.serdes import Avro, SerdeContext
from ottla.serdes.avro_codec import parse
following = {"name": "next", "type": ["null", "Node"]}
serde = Avro({"type": "record", "name": "Node", "namespace": "x", "fields": [following]})
ctx = SerdeContext("t")
print(serde.deserialize(b"\\x02\\x02\\x00", ctx))
print(serde.deserialize(b"\\x02" * 1_000_000 + b"\\x00", ctx).error_type)
value = None
for _ in range(100_000):
    value = {"next": value}
try:
    serde.serialize(value, ctx)
except ValueError as error:
    print(type(error).__name__)
sys.stdout.flush()
os._exit(0)  # freeing the nested dict is the interpreter's own business
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["{'next': {'next': {'next': None}}}", "RecursionError", "SerializationError"]


def test_an_integer_without_an_end_costs_a_recursive_schema_no_more_than_another(models: SimpleNamespace) -> None:
    began = time.process_time()
    for data in (b"\xff" * 1_000_000, b"\2a" + b"\xff" * 1_000_000, b"\xff" * 9 + b"\x7f"):
        found = Avro(models.Tree).deserialize(data, CTX)
        assert isinstance(found, Malformed)
        assert "an integer of more than 64 bits" in found.error
    assert time.process_time() - began < 5


def test_a_recursive_class_comes_back_equal(models: SimpleNamespace) -> None:
    serde = Avro(models.Tree)
    tree = models.Tree("root", [models.Tree("leaf"), models.Tree("branch", [models.Tree("leaf")])])
    assert serde.deserialize(serde.serialize(tree, CTX), CTX) == tree


def test_schema_first_values_may_be_of_any_model(models: SimpleNamespace) -> None:
    serde = Avro(Avro(models.Flat).schema)
    assert serde.serialize(models.FlatStruct(1, "a"), CTX) == serde.serialize(
        {"id": 1, "name": "a", "amount": None}, CTX
    )


def test_logical_types_come_back_as_python_types() -> None:
    fields = [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
    ]
    value = {
        "day": datetime.date(2026, 1, 2),
        "time": datetime.time(1, 2, 3, 4),
        "price": Decimal("-12.34"),
        "ref": uuid.uuid4(),
        "local": datetime.datetime(2026, 1, 2, 3, 4, 5),
    }
    serde = Avro({"type": "record", "name": "L", "fields": fields})
    assert serde.deserialize(serde.serialize(value, CTX), CTX) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}, "BLUE"),
        ({"type": "fixed", "name": "Pair", "size": 2}, b"ab"),
        (["null", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}], "RED"),
        (["string", {"type": "fixed", "name": "Pair", "size": 2}], b"ab"),
        (
            {"type": "fixed", "name": "Price", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2},
            Decimal("1.50"),
        ),
        (
            ["null", {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}],
            {"next": None},
        ),
    ],
)
def test_a_schema_that_is_a_named_type_itself_is_written_and_read(schema: Any, value: Any) -> None:
    serde = Avro(schema)
    assert serde.deserialize(serde.serialize(value, CTX), CTX) == value
