"""Differences of two documents: what breaks the other side, by direction and by format."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from ottla import App, InputError, RetryTopics
from ottla.asyncapi import differences, document_of
from ottla.asyncapi.json_compatibility import reading_problems
from ottla.serdes import Avro, Json, Protobuf, Str, TagHeader


def schema_of(kind: Any) -> dict[str, Any]:
    return msgspec.json.schema(kind)


def problems(reader: Any, writer: Any) -> list[str]:
    return reading_problems(reader=reader, writer=writer, reader_document=reader, writer_document=writer)


def struct(**fields: Any) -> Any:
    return msgspec.defstruct(
        "Order", [(name, *kind) if isinstance(kind, tuple) else (name, kind) for name, kind in fields.items()]
    )


READABLE: list[tuple[Any, Any]] = [
    (float, int),
    (int | str, int),
    (int | None, int),
    (Literal["a", "b"], Literal["a"]),
    (struct(id=int), struct(id=int, more=str)),
    (struct(id=int, more=(str, "")), struct(id=int)),
    (list[int | str], list[int]),
    (dict[str, float], dict[str, int]),
    (Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=1)]),
    (Any, struct(id=int)),
]
UNREADABLE: list[tuple[Any, Any, str]] = [
    (int, float, "/: reader wants integer, writer has number"),
    (int, int | str, "/: reader wants integer, writer has string"),
    (int, Any, "/: reader wants integer, writer has any value"),
    (Literal["a"], Literal["a", "b"], "/: reader lacks the values 'b'"),
    (struct(id=int, more=str), struct(id=int), "/more: reader requires it, writer can leave it out"),
    (struct(id=int), struct(id=(int, 0)), "/id: reader requires it, writer can leave it out"),
    (struct(id=str), struct(id=int), "/id: reader wants string, writer has integer"),
    (list[int], list[str], "/*: reader wants integer, writer has string"),
    (dict[str, int], dict[str, str], "/*: reader wants integer, writer has string"),
    (Annotated[int, msgspec.Meta(ge=1)], Annotated[int, msgspec.Meta(ge=0)], "/: reader wants minimum 1, writer has 0"),
    (Annotated[str, msgspec.Meta(max_length=3)], str, "/: reader wants maxLength 3, writer has none"),
    (Annotated[str, msgspec.Meta(min_length=1)], str, "/: reader wants minLength 1, writer has 0"),
    (Annotated[str, msgspec.Meta(pattern="^a")], str, "/: reader wants pattern '^a', writer has None"),
]


BOUNDED_ENUMS: list[tuple[Any, Any, list[str]]] = [
    ({"minimum": 1}, {"enum": [1, 2.5, "text", None]}, []),
    ({"minimum": 1}, {"enum": [0, 1]}, ["/: reader wants minimum 1, writer has 0"]),
    ({"exclusiveMinimum": 1}, {"const": 1}, ["/: reader wants exclusiveMinimum 1, writer has 1"]),
    ({"maximum": 3}, {"enum": [3, 4, 5]}, ["/: reader wants maximum 3, writer has 4, 5"]),
    ({"exclusiveMaximum": 4}, {"enum": [3, 4]}, ["/: reader wants exclusiveMaximum 4, writer has 4"]),
    ({"minimum": 1}, {"enum": [True, 2]}, []),
    ({"minLength": 2}, {"enum": ["a", "bc"]}, ["/: reader wants minLength 2, writer has 'a'"]),
    ({"maxLength": 1}, {"const": "\u00e9\u00e9"}, ["/: reader wants maxLength 1, writer has '\u00e9\u00e9'"]),
    ({"minItems": 1}, {"enum": [[], [1]]}, ["/: reader wants minItems 1, writer has a list"]),
    ({"maxProperties": 0}, {"enum": [{}, {"a": 1}]}, ["/: reader wants maxProperties 0, writer has a dict of 1"]),
    ({"minimum": 1, "enum": [0, 1]}, {"enum": [0]}, ["/: reader wants minimum 1, writer has 0"]),
]


@pytest.mark.parametrize(("reader", "writer", "said"), BOUNDED_ENUMS)
def test_values_of_an_enum_are_compared_with_the_readers_bounds(reader: Any, writer: Any, said: list[str]) -> None:
    assert problems(reader, writer) == said
    refused = [
        value for value in writer.get("enum", [writer.get("const")]) if not Draft7Validator(reader).is_valid(value)
    ]
    assert bool(refused) == bool(said), "the specification says the same"


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_what_a_reader_can_read(reader: Any, writer: Any) -> None:
    assert problems(schema_of(reader), schema_of(writer)) == []


@pytest.mark.parametrize(("reader", "writer", "said"), UNREADABLE)
def test_what_a_reader_cannot_read(reader: Any, writer: Any, said: str) -> None:
    assert problems(schema_of(reader), schema_of(writer)) == [said]


class Tree(msgspec.Struct):
    children: list[Tree]


def test_recursive_types_end() -> None:
    tree = schema_of(Tree)
    assert problems(tree, tree) == []
    assert problems(schema_of(struct(children=list[int])), tree) != []
    endless = {"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]}
    with pytest.raises(InputError):
        problems(endless, {"$ref": "#/x"})


SIMPLE = st.recursive(
    st.sampled_from(
        [{}, {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"enum": [1, "a"]}, {"const": 1}]
    ),
    lambda inner: st.one_of(
        st.builds(lambda each: {"type": "array", "items": each}, inner),
        st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner),
        st.builds(
            lambda each, required, more: {
                "type": "object",
                "properties": {"a": each},
                "required": ["a"][:required],
                "additionalProperties": more,
            },
            inner,
            st.integers(0, 1),
            st.booleans(),
        ),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.sampled_from([1, 2, 1.5, "a", "b", None]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4,
)


@given(SIMPLE, SIMPLE, st.lists(VALUES, max_size=20))
@example({"type": "integer"}, {"enum": [1, "a"]}, ["a"])
def test_no_value_contradicts_an_answer_of_readable(reader: Any, writer: Any, values: list[Any]) -> None:
    if problems(reader, writer):
        return
    read, written = Draft7Validator(reader), Draft7Validator(writer)
    for value in values:
        # An open object may have a field of any kind beside its own: that is how fields are added.
        if written.is_valid(value) and not _has_other_fields(value):
            assert read.is_valid(value), (reader, writer, value)


def _has_other_fields(value: Any) -> bool:
    if isinstance(value, dict):
        return "b" in value or any(map(_has_other_fields, value.values()))
    return isinstance(value, list) and any(map(_has_other_fields, value))


@dataclass
class Order:
    id: int


@dataclass
class OrderWithTotal:
    id: int
    total: float


def receiving(value: Any, topic: str = "orders", **options: Any) -> dict[str, Any]:
    app = App("billing")
    app.handler(topic, value=value, name="on_order", **options)(lambda order: None)
    return document_of(app)


def sending(value: Any, **options: Any) -> dict[str, Any]:
    app = App("billing")
    app.producer(value=value, topics=["invoices"], **options)
    return document_of(app)


def said(old: Any, new: Any) -> list[tuple[bool, str]]:
    return [(each.is_breaking, f"{each.operation}: {each.change}") for each in differences(old, new)]


def test_a_new_required_field_breaks_what_is_received_and_not_what_is_sent() -> None:
    one, other = Json(Order), Json(OrderWithTotal)
    required = "payload /total: reader requires it, writer can leave it out"
    assert said(receiving(one), receiving(other)) == [(True, f"receive orders: {required}")]
    assert said(receiving(other), receiving(one)) == []
    assert said(sending(one), sending(other)) == []
    assert said(sending(other), sending(one)) == [(True, f"send invoices: {required}")]
    assert said(receiving(one), receiving(one)) == []


def test_topics_keys_formats_and_event_types() -> None:
    assert said(receiving(Json(Order)), receiving(Json(Order), "orders.v2")) == [
        (True, "receive orders: is removed"),
        (False, "receive orders.v2: is new"),
    ]
    assert said(receiving(Json(Order), key=Str()), receiving(Json(Order), key=Json(int))) == [
        (True, "receive orders: key /: reader wants integer, writer has string")
    ]
    breaking, content = said(receiving(Json(Order)), receiving(Avro(Order)))
    assert breaking == (True, "receive orders: payload: application/vnd.apache.avro+json, before json-schema")
    assert content == (True, "receive orders: contentType: avro/binary, before application/json")
    with_registry = Json(Order, registry="http://registry:8081")
    assert said(receiving(Json(Order)), receiving(with_registry)) == [
        (True, "receive orders: schema id: payload, before none")
    ]

    def events(*tags: str) -> Any:
        app = App("billing")
        orders = app.topic("orders", by=TagHeader("type"))
        for tag in tags:
            orders.on(tag, value=Json(Order))(lambda order: None)
        return document_of(app)

    assert said(events("a", "b"), events("a", "c")) == [
        (True, "receive orders: is removed"),
        (False, "receive orders: is new"),
    ]


def test_avro_and_protobuf_by_their_own_rules() -> None:
    schema = Avro(OrderWithTotal).schema
    assert isinstance(schema, dict)
    renamed = {**schema, "name": "Order"}
    (problem,) = said(receiving(Avro(Order)), receiving(Avro(renamed)))
    assert problem == (
        True,
        "receive orders: payload /total/: the writer has no such field, and the reader no default",
    )

    def message(**fields: tuple[int, int]) -> Any:
        file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3")
        order = file.message_type.add(name="Order")
        for name, (number, kind) in fields.items():
            order.field.add(name=name, number=number, type=kind, label=1)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return Protobuf(message_factory.GetMessageClass(pool.FindMessageTypeByName("Order")))

    old = receiving(message(id=(1, 3)))
    assert said(old, receiving(message(number=(1, 3), note=(2, 9)))) == []
    assert said(old, receiving(message(id=(1, 9)))) == [
        (True, "receive orders: payload Order.id = 1: reader wants string, writer has int64")
    ]


def test_retry_topics_are_the_groups_own_and_partitions_are_said() -> None:
    with_retries = receiving(Json(Order), retry_topics=RetryTopics(delays_s=(1,)))
    assert said(with_retries, receiving(Json(Order))) == []
    more = copy.deepcopy(receiving(Json(Order)))
    binding = more["channels"]["orders"]["bindings"]["kafka"]
    binding["partitions"] = 3
    most = copy.deepcopy(more)
    most["channels"]["orders"]["bindings"]["kafka"]["partitions"] = 6
    assert said(more, most) == [(False, "receive orders: partitions: 6, before 3: keys move to other partitions")]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {"asyncapi": "2.6.0"},
        {"asyncapi": "3.0.0", "operations": []},
        {"asyncapi": "3.0.0", "operations": {"a": {"action": "listen"}}},
        {"asyncapi": "3.0.0", "operations": {"a": {"action": "send", "channel": {"$ref": "#/nowhere"}}}},
        {"asyncapi": "3.0.0", "operations": {"a": {"action": "send", "channel": {"$ref": "https://elsewhere"}}}},
    ],
)
def test_what_is_no_document_is_refused(broken: Any) -> None:
    for old, new in ((broken, receiving(Json(Order))), (receiving(Json(Order)), broken)):
        with pytest.raises(InputError):
            differences(old, new)
