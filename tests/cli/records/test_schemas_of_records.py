"""Avro and Protobuf by a registry and by files, through `ottla consume`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla.cli import main
from ottla.serdes import Avro, Protobuf, SchemaRegistry, SerdeContext
from ottla.testing import EmbeddedRegistry, Kafka

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="pip install 'ottla[protobuf]'")
pytest.importorskip("fastavro", reason="pip install 'ottla[avro]'")

from ottla.serdes.any_schema import add_file, message_reader, message_writer, new_pool  # noqa: E402

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
    ],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture
def ottla(kafka: Kafka) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        env = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        return CliRunner().invoke(main, ["consume", *arguments, "--format", "%v\\n"], env=env)

    return run


def order_file() -> Any:
    """shop.Order {int64 id = 1; Line line = 2} with shop.Order.Line {string sku = 1}, as protoc would describe it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=3, label=1)
    order.field.add(name="line", number=2, type=11, label=1, type_name=".shop.Order.Line")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    return file


def message_class(name: str, pool: Any = None) -> Any:
    from google.protobuf import message_factory

    if pool is None:
        pool = pool_with_orders()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def pool_with_orders() -> Any:
    pool = new_pool()
    add_file(pool, "order.proto", order_file().SerializeToString())
    return pool


def test_avro_by_the_registry(ottla, kafka: Kafka, make_topic, registry: EmbeddedRegistry) -> None:
    import datetime
    import decimal

    topic = make_topic("orders")
    serde = Avro(ORDER, registry=SchemaRegistry(registry.url))
    at = datetime.datetime(2026, 11, 22, 10, tzinfo=datetime.UTC)
    orders = [{"id": n, "at": at, "price": decimal.Decimal("9.50"), "raw": b"\xff"} for n in range(3)]
    context = SerdeContext(topic, "value")
    kafka.produce(topic, [*(serde.serialize(order, context) for order in orders), b"\0\0\0\xff\xffno", b"text"])
    shown = ottla(topic, "--registry", registry.url, "--where", "value.price >= 9.5 and value.id == 2")
    assert json.loads(shown.stdout) == {"id": 2, "at": "2026-11-22T10:00:00Z", "price": 9.50, "raw": "/w=="}
    every = ottla(topic, "--registry", registry.url, "--as", "avro")
    assert every.exit_code == 1
    assert "2 values could not be decoded" in every.stderr
    auto = ottla(topic, "--registry", registry.url)
    assert auto.stdout.splitlines()[-1] == "text"
    assert "1 values could not be decoded" in auto.stderr
    assert "no schema 65535" in auto.stderr.replace("65,535", "65535") or "UnknownSchema" in auto.stderr
    assert "wanted PROTOBUF" in ottla(topic, "--registry", registry.url, "--as", "protobuf").stderr


def test_avro_by_a_file(ottla, kafka: Kafka, make_topic, tmp_path: Path) -> None:
    topic = make_topic("plain")
    path = tmp_path / "order.avsc"
    path.write_text('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
    kafka.produce(topic, [b"\x0e", b"\x0e\x0e"])
    shown = ottla(topic, "--as", "avro", "--schema", str(path))
    assert shown.stdout.splitlines()[0] == '{"id":7}'
    assert "1 values could not be decoded" in shown.stderr
    path.write_text('{"type": "recrod"}')
    assert ottla(topic, "--as", "avro", "--schema", str(path)).exit_code == 2


def test_protobuf_by_the_registry(ottla, kafka: Kafka, make_topic, registry: EmbeddedRegistry) -> None:
    topic = make_topic("messages")
    pool = pool_with_orders()
    order, line = message_class("shop.Order", pool), message_class("shop.Order.Line", pool)
    client = SchemaRegistry(registry.url)
    context = SerdeContext(topic, "value")
    values = [
        Protobuf(order, registry=client).serialize(order(order_id=7, line=line(sku="a")), context),
        Protobuf(line, registry=client).serialize(line(sku="b"), context),
        b"\0\0\0\0\1\x02\x7e",  # a message that the file does not have
    ]
    kafka.produce(topic, values)
    shown = ottla(topic, "--registry", registry.url)
    lines = shown.stdout.splitlines()
    assert json.loads(lines[0]) == {"order_id": "7", "line": {"sku": "a"}}
    assert json.loads(lines[1]) == {"sku": "b"}
    assert "1 values could not be decoded" in shown.stderr


def test_protobuf_by_a_file(ottla, kafka: Kafka, make_topic, tmp_path: Path) -> None:
    topic = make_topic("messages")
    path = tmp_path / "order.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[order_file()]).SerializeToString())
    kafka.produce(topic, [message_class("shop.Order")(order_id=7).SerializeToString()])
    options = [topic, "--as", "protobuf", "--schema", str(path), "--message"]
    assert json.loads(ottla(*options, "shop.Order").stdout) == {"order_id": "7"}
    wrong = ottla(*options, "shop.Oder")
    assert (wrong.exit_code, "wanted one of shop.Order" in wrong.stderr) == (2, True)
    path.write_bytes(b"\xff\xff")
    assert "wanted what protoc" in ottla(*options, "shop.Order").stderr


def test_a_plain_value_becomes_a_message_and_comes_back() -> None:
    descriptor = message_class("shop.Order").DESCRIPTOR
    value = {"order_id": "7", "line": {"sku": "a"}}
    assert message_reader(descriptor)(message_writer(descriptor)(value)) == value
    for wrong in (3, {"sku": 1}, {"order_id": "x"}, [], None):
        with pytest.raises(ValueError, match=r"shop\.Order"):
            message_writer(descriptor)(wrong)


def test_a_registry_that_is_down_is_one_line(ottla, kafka: Kafka, make_topic) -> None:
    topic = make_topic("framed")
    kafka.produce(topic, [b"\0\0\0\0\1x"])
    result = ottla(topic, "--registry", "http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "127.0.0.1:1" in result.stderr
