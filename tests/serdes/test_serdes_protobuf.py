from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError, RegistryUnavailable, SerializationError
from ottla.records import Malformed
from ottla.serdes import Protobuf, SchemaRegistry, SerdeContext
from ottla.serdes.protobuf_files import messages_in
from ottla.serdes.wire_format import header, message_path
from ottla.testing.registry import EmbeddedRegistry

CTX = SerdeContext("orders")


def _messages() -> dict[str, Any]:
    """The classes protoc would generate for two small files, one importing the other."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    field = descriptor_pb2.FieldDescriptorProto
    common = descriptor_pb2.FileDescriptorProto(name="shop/common.proto", package="shop", syntax="proto3")
    money = common.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    orders = descriptor_pb2.FileDescriptorProto(
        name="shop/orders.proto",
        package="shop",
        syntax="proto2",
        dependency=["shop/common.proto", "google/protobuf/timestamp.proto"],
    )
    order = orders.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_REQUIRED)
    order.field.add(name="name", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="total", number=3, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".shop.Money"
    )
    refund = orders.message_type.add(name="Refund")
    entry = refund.nested_type.add(name="LinesEntry")
    entry.options.map_entry = True
    for number, name in ((1, "key"), (2, "value")):
        entry.field.add(name=name, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    refund.field.add(
        name="lines",
        number=1,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".shop.Refund.LinesEntry",
    )
    reason = refund.nested_type.add(name="Reason")
    reason.field.add(name="text", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    for file in (common, orders):
        pool.AddSerializedFile(file.SerializeToString())
    names = ("Money", "Order", "Refund", "Refund.Reason")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names}


MESSAGES = _messages()
Order, Reason = MESSAGES["Order"], MESSAGES["Refund.Reason"]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with EmbeddedRegistry() as server:
        yield SchemaRegistry(server.url, attempts=1)


@given(st.integers(-(2**63), 2**63 - 1), st.text())
def test_a_message_comes_back_equal(number: int, name: str) -> None:
    order = Order(id=number, name=name)
    serde: Protobuf[Any] = Protobuf(Order)
    data = serde.serialize(order, CTX)
    assert data == order.SerializeToString()
    assert serde.deserialize(data, CTX) == order


@given(st.binary())
def test_no_bytes_make_it_raise(data: bytes) -> None:
    found = Protobuf(Order).deserialize(data, CTX)
    assert isinstance(found, Malformed | Order)
    if isinstance(found, Malformed):
        assert found.raw == data


def test_a_missing_required_field_is_invalid_when_read_and_refused_when_written() -> None:
    found = Protobuf(Order).deserialize(b"", CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error) == ("invalid", "not a valid Order: missing required fields: id")
    with pytest.raises(SerializationError, match=r"orders value: .*id"):
        Protobuf(Order).serialize(Order(name="x"), CTX)


def test_a_rule_of_the_value_is_invalid() -> None:
    def check(order: Any) -> None:
        if order.id < 0:
            raise ValueError(f"id is negative: {order.id}")

    serde: Protobuf[Any] = Protobuf(Order, check=check)
    found = serde.deserialize(serde.serialize(Order(id=-1), CTX), CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("invalid", "ValueError")
    assert serde.deserialize(serde.serialize(Order(id=1), CTX), CTX) == Order(id=1)


def test_a_message_of_another_class_is_refused() -> None:
    with pytest.raises(SerializationError, match="expected a Order message, got Money"):
        Protobuf(Order).serialize(MESSAGES["Money"](cents=1), CTX)


def test_a_class_that_protoc_did_not_generate_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="protoc"):
        Protobuf(dict)  # type: ignore[type-var]


def test_the_place_of_the_message_in_its_file_stands_behind_the_schema_id(registry: SchemaRegistry) -> None:
    first = Protobuf(Order, registry=registry).serialize(Order(id=1), SerdeContext("first"))
    nested = Protobuf(Reason, registry=registry).serialize(Reason(text="a"), SerdeContext("nested"))
    assert first is not None
    assert nested is not None
    assert first[5:] == b"\0" + Order(id=1).SerializeToString()
    assert nested[5:] == bytes([4, 2, 2]) + Reason(text="a").SerializeToString()
    assert Protobuf(Order, registry=registry).deserialize(first, CTX) == Order(id=1)
    assert Protobuf(Reason, registry=registry).deserialize(nested, CTX) == Reason(text="a")


def test_imported_files_are_registered_as_references_and_googles_own_are_not(registry: SchemaRegistry) -> None:
    Protobuf(Order, registry=registry).prepare(CTX)
    assert registry.subjects() == ["orders-value", "shop/common.proto"]
    registered = registry.version("orders-value")
    assert [(r.name, r.subject, r.version) for r in registered.references] == [
        ("shop/common.proto", "shop/common.proto", 1)
    ]
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(registered.text))
    assert file.name == "shop/orders.proto"


def test_without_auto_register_nothing_is_registered_and_what_is_missing_is_named(registry: SchemaRegistry) -> None:
    reading = Protobuf(Order, registry=registry, auto_register=False)
    with pytest.raises(ConfigError, match=r"shop/orders.proto imports shop/common.proto, which is not registered"):
        reading.serialize(Order(id=1), CTX)
    assert registry.subjects() == []
    written = Protobuf(Order, registry=registry).serialize(Order(id=1), CTX)
    assert reading.serialize(Order(id=1), CTX) == written


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\0\0\0\0\1", b"\0\0\0\0\1\xff\xff\xff\xff\xff\xff\x0f"])
def test_bytes_without_id_or_path_are_malformed(registry: SchemaRegistry, data: bytes) -> None:
    found = Protobuf(Order, registry=registry).deserialize(data, CTX)
    assert isinstance(found, Malformed)
    assert found.error_type == "NotFramed"


SOURCE = """
// message Wrong { }
syntax = "proto2";  /* message Wrong { */
package shop;
import "shop/common.proto";
option (shop.note) = { text: "message Wrong {" };
message Order {
  required int64 id = 1;
  optional string name = 2 [default = "}"];
  optional .shop.Money total = 3;
}
message Refund {
  map<string, string> lines = 1;
  optional group Extra = 2 { optional string note = 1; }
  oneof one { string a = 3; group Other = 4 { optional string b = 1; } }
  enum Kind { A = 0; }
  message Reason { optional string text = 1; }
}
service Orders { rpc Place (Order) returns (Refund) { option deprecated = true; } }
"""


@pytest.fixture
def by_source(registry: SchemaRegistry) -> int:
    return registry.register("by-source", SOURCE, "PROTOBUF")


def _framed(schema_id: int, path: list[int], message: Any) -> bytes:
    return header(schema_id) + message_path(path) + message.SerializeToString()


def test_a_message_of_the_same_file_is_not_read_as_another(registry: SchemaRegistry, by_source: int) -> None:
    Protobuf(Order, registry=registry).prepare(CTX)
    by_descriptor = registry.version("orders-value").id
    refund = MESSAGES["Refund"](lines={"a": "b"})
    serde = Protobuf(Order, registry=registry)
    for schema_id in (by_descriptor, by_source):
        assert serde.deserialize(_framed(schema_id, [0], Order(id=1)), CTX) == Order(id=1)
        data = _framed(schema_id, [1], refund)
        found = serde.deserialize(data, CTX)
        assert isinstance(found, Malformed)
        assert (found.kind, found.error_type, found.raw) == ("malformed", "UnusableSchema", data)
        assert "the message is shop.Refund, wanted shop.Order" in found.error
        beyond = serde.deserialize_many([_framed(schema_id, [2], Order(id=1))], CTX)[0]
        assert isinstance(beyond, Malformed)
        assert f"schema {schema_id} has no message at [2]" in beyond.error


def test_a_place_is_found_however_its_writer_counted(registry: SchemaRegistry, by_source: int) -> None:
    serde = Protobuf(Reason, registry=registry)
    # Java's client passes over what protoc makes of a map field and of groups; [1, 1] is the place in our own file.
    for path in ([1, 0], [1, 1], [1, 3]):
        assert serde.deserialize(_framed(by_source, path, Reason(text="a")), CTX) == Reason(text="a")
    for path in ([1], [1, 2], [1, 4], [1, 0, 0]):
        assert isinstance(serde.deserialize(_framed(by_source, path, Reason(text="a")), CTX), Malformed)


def test_a_place_of_the_same_file_is_found_in_the_source_that_a_registry_writes(registry: SchemaRegistry) -> None:
    """Registries put maps in front of messages: what Python's client calls [0, 2] is [0, 3], or [0, 1]."""
    file = descriptor_pb2.FileDescriptorProto(name="maps.proto", package="maps", syntax="proto3")
    outer = file.message_type.add(name="Outer")
    for name, is_map in (("First", False), ("AEntry", True), ("Second", False), ("BEntry", True)):
        nested = outer.nested_type.add(name=name)
        nested.options.map_entry = is_map
        for number, field in ((1, "key"), (2, "value")):
            nested.field.add(name=field, number=number, type=9, label=1)
    for number, field in ((1, "a"), (2, "b")):
        outer.field.add(name=field, number=number, type=11, label=3, type_name=f".maps.Outer.{field.upper()}Entry")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    second = message_factory.GetMessageClass(pool.FindMessageTypeByName("maps.Outer.Second"))
    source = (
        "package maps; message Outer { map<string, string> a = 1; map<string, string> b = 2;"
        " message First { string key = 1; string value = 2; } message Second { string key = 1; string value = 2; } }"
    )
    schema_id = registry.register("maps", source, "PROTOBUF")
    serde = Protobuf(second, registry=registry)
    for path, is_read in (
        ([0, 2], True),
        ([0, 3], True),
        ([0, 1], True),
        ([0, 0], False),
        ([0, 4], False),
        ([0], False),
    ):
        found = serde.deserialize(_framed(schema_id, path, second(key="k")), CTX)
        assert (found == second(key="k")) is is_read


def test_a_message_of_another_package_is_read_under_an_alias(registry: SchemaRegistry) -> None:
    schema_id = registry.register("other", SOURCE.replace("package shop", "package acme.v1"), "PROTOBUF")
    data = _framed(schema_id, [0], Order(id=1))
    refused = Protobuf(Order, registry=registry).deserialize(data, CTX)
    assert isinstance(refused, Malformed)
    assert "the message is acme.v1.Order, wanted shop.Order; aliases=" in refused.error
    assert Protobuf(Order, registry=registry, aliases=["acme.v1.Order"]).deserialize(data, CTX) == Order(id=1)
    for options in ({"aliases": "acme.v1.Order", "registry": registry}, {"aliases": ["acme.v1.Order"]}):
        with pytest.raises(ConfigError, match="aliases="):
            Protobuf(Order, **options)  # type: ignore[arg-type]


def test_an_event_loop_is_told_before_the_schema_is_asked_for(registry: SchemaRegistry, by_source: int) -> None:
    serde = Protobuf(Order, registry=SchemaRegistry(registry.url))
    data = _framed(by_source, [0], Order(id=1))
    assert serde.would_block([data], CTX)
    serde.deserialize(data, CTX)
    assert not serde.would_block([data], CTX)


def test_a_schema_of_another_kind_and_an_unknown_one_are_malformed_and_an_outage_is_none(
    registry: SchemaRegistry,
) -> None:
    serde = Protobuf(Order, registry=registry)
    avro_id = registry.register("avro", '"long"')
    for schema_id, error in ((avro_id, "is AVRO, wanted PROTOBUF"), (999, "no schema 999"), (2**31, "ids end")):
        found = serde.deserialize(_framed(schema_id, [0], Order(id=1)), CTX)
        assert isinstance(found, Malformed)
        assert error in found.error
    away = Protobuf(Order, registry=SchemaRegistry("http://127.0.0.1:9", attempts=1))
    with pytest.raises(RegistryUnavailable):
        away.deserialize(_framed(1, [0], Order(id=1)), CTX)


@pytest.mark.parametrize("text", ["}" * 10, "message A {" * 2_000, "/*" * 100_000, '"' * 100_001, "\\'" * 100_000, "{"])
def test_source_that_anybody_registered_is_read_in_time_or_refused(text: str) -> None:
    began = time.process_time()
    with contextlib.suppress(ValueError):
        assert messages_in(text) == []
    assert time.process_time() - began < 5


@given(st.text(st.sampled_from('message {};ab."=<>/*\n')))
def test_no_text_makes_the_reader_of_sources_raise_anything_else(text: str) -> None:
    with contextlib.suppress(ValueError):
        messages_in(text)
