"""`ottla schemas check --app`: which schemas an app uses, and how each is compared with its subject."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ottla import App, Avro, Json, Protobuf, TagHeader
from ottla.browse.app_schemas import app_schemas, check_item
from ottla.errors import ConfigError, RegistryUnavailable
from ottla.serdes import SchemaRegistry, Serde, subjects
from ottla.serdes.cloud_events import CloudEvents
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry

SECRET = "corr3ct-h0rse"


@dataclass
class Order:
    id: int


@dataclass
class Refund:
    order_id: int
    reason: str = ""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with EmbeddedRegistry() as running:
        yield SchemaRegistry(running.url, attempts=1)


def results(app: App) -> list[tuple[str, str, str, str, str]]:
    items = [check_item(each) for each in app_schemas(app)]
    return [(item["place"], item["action"], item["subject"], item["type"], item["result"]) for item in items]


@pytest.mark.parametrize("shell", ["threads", "asyncio"])
def test_handlers_producers_keys_and_event_types_are_found(registry: SchemaRegistry, shell: str) -> None:
    app = App("billing")
    make: Any = app.producer if shell == "threads" else app.async_producer
    make(value=Avro(Order, registry=registry), key=Avro("long", registry=registry), topics=["invoices"])
    make(value=Avro(Order, registry=registry))  # it does not say where it sends
    events = app.topic("events", by=TagHeader("type"), key=Avro("string", registry=registry))
    if shell == "threads":

        @app.handler("orders", value=CloudEvents(Avro(Order, registry=registry)))
        def on_order(order: Order) -> None: ...

        @events.on("refund", value=Avro(Refund, registry=registry, subject=subjects.topic_record_name))
        def on_refund(refund: Refund) -> None: ...
    else:

        @app.handler("orders", value=CloudEvents(Avro(Order, registry=registry)))
        async def on_order_async(order: Order) -> None: ...

        @events.on("refund", value=Avro(Refund, registry=registry, subject=subjects.topic_record_name))
        async def on_refund_async(refund: Refund) -> None: ...

    found = {(action, subject) for _, action, subject, _, _ in results(app)}
    assert found == {
        ("receive", "orders-value"),
        ("receive", "events-key"),
        ("receive", "events-Refund"),
        ("send", "invoices-key"),
        ("send", "invoices-value"),
    }


def received(serde: Serde[Any]) -> App:
    app = App("reads")

    @app.handler("orders", value=serde)
    def on_order(order: Any) -> None: ...

    return app


def sending(serde: Serde[Any]) -> App:
    app = App("writes")
    app.producer(value=serde, topics=["orders"])
    return app


def test_a_serde_that_registers_nothing_needs_its_schema(registry: SchemaRegistry) -> None:
    app = sending(Avro(Order, registry=registry, auto_register=False))
    (item,) = [check_item(each) for each in app_schemas(app)]
    assert (item["result"], "auto_register=False" in item["problems"][0]) == ("not registered", True)
    assert registry.subjects() == [], "a check registers nothing"
    registry.register("orders-value", json.dumps(Avro(Order).schema))
    assert results(app)[0][4] == "registered"


def test_json_is_compared_by_its_own_rules(registry: SchemaRegistry) -> None:
    registry.register("orders-value", json.dumps({"type": "object", "properties": {"id": {"type": "string"}}}), "JSON")
    (item,) = [check_item(each) for each in app_schemas(received(Json(Order, registry=registry)))]
    assert item["result"] == "incompatible"
    assert "version 1: /id: reader wants integer, writer has string" in item["problems"]


def test_protobuf_is_compared_as_descriptor_and_as_source(registry: SchemaRegistry) -> None:
    serde = Protobuf(_message(), registry=registry)
    assert results(sending(serde))[0][4] == "new subject"
    _, schema = next(app_schemas(sending(serde))).framing.schema(_context())
    registry.register("orders-value", schema.text, "PROTOBUF")
    assert results(received(serde)) == [("on_order", "receive", "orders-value", "PROTOBUF", "compatible")]
    registry.set_compatibility("NONE")
    registry.register("orders-value", 'syntax = "proto3";\nmessage Other { int32 x = 1; }', "PROTOBUF")
    (item,) = [check_item(each) for each in app_schemas(received(serde))]
    assert (item["result"], item["problems"]) == ("incompatible", ["version 2: Other: the reader has no such message"])


def test_a_schema_of_another_format_cannot_be_read(registry: SchemaRegistry) -> None:
    registry.register("orders-value", '{"type": "object"}', "JSON")
    (item,) = [check_item(each) for each in app_schemas(received(Avro(Order, registry=registry)))]
    assert item["problems"] == ["version 1: /: reader wants AVRO, writer has JSON"]


def test_the_login_of_the_serde_is_used_and_a_refusal_shows_no_secret() -> None:
    with EmbeddedRegistry(users={"ops": SECRET}) as running:
        known = SchemaRegistry(running.url, user="ops", password=SECRET)
        assert results(received(Avro(Order, registry=known)))[0][4] == "new subject"
        wrong = SchemaRegistry(running.url, user="ops", password=f"not-{SECRET}", attempts=1)
        with pytest.raises(RegistryUnavailable) as refused:
            results(received(Avro(Order, registry=wrong)))
        assert SECRET not in str(refused.value)
        admin = RegistryAdmin(running.url, user="ops", password=SECRET)
        assert [check_item(each, admin)["result"] for each in app_schemas(received(Avro(Order, registry=wrong)))] == [
            "new subject"
        ], "--registry in place of that of the serde"


def test_an_import_that_is_not_registered_is_named(registry: SchemaRegistry) -> None:
    order = _message(imports=True)
    (used,) = app_schemas(sending(Protobuf(order, registry=registry)))
    with pytest.raises(ConfigError, match=r"imports items\.proto, which is not registered"):
        check_item(used)


def _context() -> Any:
    from ottla.serdes import SerdeContext

    return SerdeContext("orders")


def _message(*, imports: bool = False) -> Any:
    """A message `shop.Order`, of a file that stands alone or imports another one."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    if imports:
        item = descriptor_pb2.FileDescriptorProto(name="items.proto", package="shop", syntax="proto3")
        item.message_type.add(name="Item")
        pool.Add(item)
        file.dependency.append("items.proto")
        order.field.add(name="item", number=2, type=11, label=1, type_name=".shop.Item")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
