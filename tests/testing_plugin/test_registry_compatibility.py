"""The embedded registry's rules for new versions, and that a replayed log is the same registry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.serdes import Avro, SerdeContext
from ottla.serdes.avro_compatibility import problems, reading_problems
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
    assert (problems(new, earlier, level) == []) is is_allowed


def body(schema: Any, **extra: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **extra}


def apply(state: RegistryState, records: list[LogRecord], log: list[LogRecord]) -> None:
    for entry in records:
        # As it comes back from the topic: through JSON.
        log.append(LogRecord(json.loads(json.dumps(entry.key)), json.loads(json.dumps(entry.value))))
        state.replay(log[-1])


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
    ],
)
def test_what_is_not_a_schema_is_refused_with_confluents_code(given_body: Any, code: int) -> None:
    with pytest.raises(RegistryRefusal) as refusal:
        RegistryState().register("a", given_body)
    assert (refusal.value.status, refusal.value.code) == (422, code)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(RegistryRefusal, match="Invalid compatibility level SIDEWAYS"):
        RegistryState().set_level(None, {"compatibility": "sideways"})
