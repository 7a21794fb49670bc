"""The embedded registry's rules for new versions, and that a replayed log is the same registry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.serdes import Avro, SerdeContext
from ottla.serdes.avro_compatibility import reading_problems
from ottla.testing.registry.state import LogRecord, RegistryRefusal, RegistryState


def record(*fields: Any, name: str = "R", **extra: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **extra}


def field(name: str, type: Any, **extra: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **extra}


TREE = record(field("children", {"type": "array", "items": "R"}))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("double", "float"),
        ("bytes", "string"),
        (["null", "long"], "int"),
        (["null", "string"], ["string", "null"]),
        (record(field("a", "long")), record(field("a", "int"), field("gone", "string"))),
        (record(field("a", "long"), field("new", "string", default="")), record(field("a", "long"))),
        (record(field("b", "long", aliases=["a"])), record(field("a", "long"))),
        (record(field("a", "long"), name="New", aliases=["R"]), record(field("a", "long"))),
        (record(field("a", "long"), namespace="x"), record(field("a", "long"), namespace="y")),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": "double"}, {"type": "map", "values": "long"}),
        (TREE, TREE),
    ],
)
def test_what_avro_can_resolve_is_readable(reader: Any, writer: Any) -> None:
    assert reading_problems(reader=reader, writer=writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "wanted"),
    [
        ("int", "long", "/: reader wants int, writer has long"),
        ("string", ["string", "null"], "/: reader wants string, writer has null"),
        (["null", "int"], "string", "/: string is no branch of the reader's union"),
        (record(field("must", "long")), record(), "/must/: the writer has no such field, and the reader no default"),
        (record(field("a", "int")), record(field("a", "string")), "/a/: reader wants int, writer has string"),
        (record(name="A"), record(name="B"), "/: reader wants record A, writer has B"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "/: reader lacks the enum symbols B",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "/: fixed of 3 bytes, reader wants 2",
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "long"},
            "/items/: reader wants int, writer has long",
        ),
        (
            record(field("children", {"type": "array", "items": "R"}), field("x", "int")),
            TREE,
            "/x/: the writer has no such field, and the reader no default",
        ),
    ],
)
def test_what_avro_cannot_resolve_names_its_place(reader: Any, writer: Any, wanted: str) -> None:
    assert reading_problems(reader=reader, writer=writer) == [wanted]


primitives = st.sampled_from(["int", "long", "float", "double", "string", "bytes", "boolean"])
SAMPLES: dict[str, Any] = {
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 1.5,
    "string": "s",
    "bytes": b"b",
    "boolean": True,
}


@given(st.dictionaries(st.sampled_from("abcd"), primitives), st.dictionaries(st.sampled_from("abcd"), primitives))
def test_it_agrees_with_what_the_serde_can_read(written: dict[str, str], wanted: dict[str, str]) -> None:
    writer = record(*(field(name, type) for name, type in written.items()))
    reader = record(*(field(name, type) for name, type in wanted.items()))
    ctx = SerdeContext("t")
    data = Avro(writer).serialize({name: SAMPLES[type] for name, type in written.items()}, ctx)
    found = Avro(reader, writer_schema=writer).deserialize(data, ctx)
    assert isinstance(found, dict) == (reading_problems(reader=reader, writer=writer) == [])


ADDED = record(field("a", "long"), field("b", "long"))
WITH_DEFAULT = record(field("a", "long"), field("b", "long", default=0))
FIRST = record(field("a", "long"))


@pytest.mark.parametrize(
    ("level", "new", "earlier", "is_allowed"),
    [
        ("NONE", ADDED, [FIRST], True),
        ("BACKWARD", ADDED, [FIRST], False),
        ("BACKWARD", FIRST, [ADDED], True),
        ("BACKWARD", WITH_DEFAULT, [FIRST], True),
        ("FORWARD", ADDED, [FIRST], True),
        ("FORWARD", FIRST, [ADDED], False),
        ("FULL", WITH_DEFAULT, [FIRST], True),
        ("FULL", ADDED, [FIRST], False),
        ("BACKWARD", ADDED, [FIRST, WITH_DEFAULT], True),
        ("BACKWARD_TRANSITIVE", ADDED, [FIRST, WITH_DEFAULT], False),
        ("BACKWARD", ADDED, [], True),
    ],
)
def test_each_level_looks_in_its_direction_and_as_far_back_as_it_says(
    level: str, new: Any, earlier: list[Any], is_allowed: bool
) -> None:
    assert is_taken(new, earlier, level) is is_allowed


def body(schema: Any, **extra: Any) -> dict[str, Any]:
    return {"schema": schema if isinstance(schema, str) else json.dumps(schema), **extra}


def apply(state: RegistryState, records: list[LogRecord], log: list[LogRecord]) -> None:
    for entry in records:
        # As it comes back from the topic: through JSON.
        log.append(LogRecord(json.loads(json.dumps(entry.key)), json.loads(json.dumps(entry.value))))
        state.replay(log[-1])


def refusal_of(new: Any, earlier: list[Any], level: str = "BACKWARD", **extra: Any) -> str | None:
    """Why a registry refuses a version that comes after others, which are registered without a check."""
    state = RegistryState()
    apply(state, state.set_level(None, {"compatibility": "NONE"})[0], [])
    for each in earlier:
        apply(state, state.register("a", body(each, **extra))[0], [])
    apply(state, state.set_level(None, {"compatibility": level})[0], [])
    try:
        state.register("a", body(new, **extra))
    except RegistryRefusal as refusal:
        return f"{refusal.status} {refusal}"
    return None


def is_taken(new: Any, earlier: list[Any], level: str, **extra: Any) -> bool:
    return refusal_of(new, earlier, level, **extra) is None


def json_object(*required: str, is_closed: bool = False, **fields: Any) -> dict[str, Any]:
    closed = {"additionalProperties": False} if is_closed else {}
    return {"type": "object", "properties": fields, "required": list(required), **closed}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
ORDER = json_object("id", id=NUMBER)
CLOSED = json_object("id", is_closed=True, id=NUMBER)


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (json_object("id", id={"type": "number"}), ORDER, None),
        (json_object("id", id=TEXT), ORDER, "/id: reader wants string, writer has integer"),
        (json_object("id", "note", id=NUMBER, note=TEXT), ORDER, "/note: reader requires it, writer can leave it out"),
        (json_object("id", "note", is_closed=True, id=NUMBER, note={**TEXT, "default": ""}), CLOSED, None),
        (json_object("id", is_closed=True, id=NUMBER, note=TEXT), CLOSED, None),
        (json_object("id", id=NUMBER, note=TEXT), ORDER, "/note: writer can have any value there: its object is open"),
        (json_object("id", id=NUMBER, note={}), ORDER, None),
        (json_object(is_closed=True), CLOSED, "/id: reader refuses a field that it does not know"),
        (json_object(), ORDER, None),
        ({"$ref": "#/definitions/O", "definitions": {"O": json_object(id=TEXT)}}, ORDER, "/id: reader wants string"),
    ],
)
def test_json_schemas_are_compared_as_confluents_registry_does(new: Any, old: Any, said: str | None) -> None:
    refused = refusal_of(new, [old], schemaType="JSON")
    if said is None:
        assert refused is None
    else:
        assert refused is not None
        assert refused.startswith("409 Schema is not compatible with subject a: ")
        assert said in refused


PROTO = """syntax = "proto3"; package shop;
message Order {
  int64 id = 1; Line line = 2; State state = 3; repeated string tags = 4;
  oneof paid_by { string card = 5; bytes cheque = 6; }
  message Line { string sku = 1; }
}
enum State { OPEN = 0; PAID = 1; }
"""


@pytest.mark.parametrize(
    ("old_text", "new_text", "said"),
    [
        ("int64 id", "sint64 id", "Order.id = 1: reader wants sint64, writer has int64"),
        ("int64 id", "uint32 number", None),
        ("string sku", "int32 sku", "Order.Line.sku = 1: reader wants int32, writer has string"),
        ("string sku", "bytes sku", None),
        ("Line line = 2", "State line = 2", "Order.line = 2: reader wants State, writer has Line"),
        ("State state", "int32 state", None),
        ("repeated string tags", "string tags", "Order.tags = 4: repeated in one of them only"),
        ("repeated string tags = 4;", "", None),
        ("bytes cheque = 6;", "", "Order.cheque = 6: the reader lacks it, a member of oneof paid_by"),
        ("bytes cheque = 6;", "bytes cheque = 6; int32 cash = 7;", None),
        ("string card = 5;", "string card = 5; int64 id = 1;", "Order: "),
        ("PAID = 1;", "", None),
        ("package shop;", "package acme.v1;", None),
        ("message Line { string sku = 1; }", "message Item { string sku = 1; }", "Order.Line: the reader has no such"),
        ("message Order", "message Cart {} message Order", None),
    ],
)
def test_protobuf_files_are_compared_by_field_numbers(old_text: str, new_text: str, said: str | None) -> None:
    new = PROTO.replace(old_text, new_text)
    if new_text.endswith("int64 id = 1;"):
        new, said = new.replace("  int64 id = 1; Line", "  Line"), "Order.paid_by: the writer can set more than one of"
    assert new != PROTO
    refused = refusal_of(new, [PROTO], schemaType="PROTOBUF")
    if said is None:
        assert refused is None
    else:
        assert refused is not None
        assert refused.startswith("409 Schema is not compatible with subject a: ")
        assert said in refused


def test_another_format_does_not_follow() -> None:
    state = RegistryState()
    apply(state, state.register("a", body(FIRST))[0], [])
    with pytest.raises(RegistryRefusal, match="reader wants JSON, writer has AVRO"):
        state.register("a", body({"type": "object"}, schemaType="JSON"))


def test_references_are_followed_and_what_cannot_be_compared_is_refused_in_words() -> None:
    state = RegistryState()
    line = record(field("sku", "string"), name="Line")
    used = {"references": [{"name": "Line", "subject": "line", "version": 1}]}
    apply(state, state.register("line", body(line))[0], [])
    apply(state, state.register("a", body(record(field("line", "Line")), **used))[0], [])
    with pytest.raises(RegistryRefusal, match="/line/: reader wants string, writer has Line"):
        state.register("a", body(record(field("line", "string"))))
    apply(state, state.register("a", body(record(field("line", line))))[0], [])
    apply(state, state.register("j", body({"$ref": "line"}, schemaType="JSON", **used))[0], [])
    with pytest.raises(RegistryRefusal, match=r"not compared: .* takes it at the level NONE only"):
        state.register("j", body({"type": "object"}, schemaType="JSON"))
    apply(state, state.set_level("j", {"compatibility": "none"})[0], [])
    assert state.register("j", body({"type": "object"}, schemaType="JSON"))[0] != []


def test_the_same_schema_has_one_id_under_every_subject_and_one_version_in_each() -> None:
    state, log = RegistryState(), []
    for subject, schema, wanted in [("a", FIRST, 1), ("a", FIRST, 1), ("b", FIRST, 1), ("a", WITH_DEFAULT, 2)]:
        records, answer = state.register(subject, body(schema))
        assert answer == {"id": wanted}
        apply(state, records, log)
    assert (state.numbers("a"), state.numbers("b")) == ([1, 2], [1])
    assert len(log) == 3


def test_a_replayed_log_is_the_same_registry() -> None:
    state, log = RegistryState(), []
    apply(state, state.register("a", body(FIRST))[0], log)
    apply(state, state.set_level("a", {"compatibility": "none"})[0], log)
    apply(state, state.register("a", body(ADDED))[0], log)
    apply(state, state.register("j", body({"type": "object"}, schemaType="JSON"))[0], log)
    apply(state, state.delete("a")[0], log)
    again = RegistryState()
    for entry in log:
        again.replay(entry)
    assert again == state
    assert again.names() == ["j"]


def test_a_deleted_subject_is_gone_but_its_ids_still_answer_and_its_numbers_are_not_reused() -> None:
    state, log = RegistryState(), []
    apply(state, state.register("a", body(FIRST))[0], log)
    apply(state, state.delete("a")[0], log)
    with pytest.raises(RegistryRefusal, match="'a' not found"):
        state.numbers("a")
    assert json.loads(state.schema("1")["schema"]) == FIRST
    apply(state, state.register("a", body(WITH_DEFAULT))[0], log)
    assert state.numbers("a") == [2]


@pytest.mark.parametrize(
    ("given_body", "code"),
    [
        ({"schema": "{"}, 42201),
        ({"schema": '"strin"'}, 42201),
        ({}, 42201),
        ({"schema": "{}", "schemaType": "XML"}, 42201),
        ({"schema": "[", "schemaType": "JSON"}, 42201),
        ({"schema": "message A { int32 a = 0; }", "schemaType": "PROTOBUF"}, 42201),
        ({"schema": "message A {", "schemaType": "PROTOBUF"}, 42201),
        ({"schema": "AAAA", "schemaType": "PROTOBUF"}, 42201),
    ],
)
def test_what_is_not_a_schema_is_refused_with_confluents_code(given_body: Any, code: int) -> None:
    with pytest.raises(RegistryRefusal) as refusal:
        RegistryState().register("a", given_body)
    assert (refusal.value.status, refusal.value.code) == (422, code)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(RegistryRefusal, match="Invalid compatibility level SIDEWAYS"):
        RegistryState().set_level(None, {"compatibility": "sideways"})
