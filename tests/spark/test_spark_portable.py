"""Serdes on their way to workers, without Spark."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from typing import Literal

import pytest

from ottla.errors import ConfigError
from ottla.serdes import Avro, Bytes, Int64, Json, Protobuf, SerdeContext, Str
from ottla.spark import read, split
from ottla.spark.values.portable import recipe_of

CTX = SerdeContext("orders")
pytest.importorskip("pyspark")


@dataclasses.dataclass
class Order:
    id: int
    note: str = "none"


def travelled(serde):
    return pickle.loads(pickle.dumps(recipe_of(serde)))()


@pytest.mark.parametrize("serde", [Bytes(), Str(), Int64(), Json(Order), Json(), Avro(Order), Avro("long")])
def test_a_serde_decodes_over_there_what_it_decodes_here(serde):
    data = {Bytes: b"x", Str: b"x", Int64: bytes(8), Json: b'{"id": 5}', Avro: b"\x0a\x00"}[type(serde)]
    if serde.__class__ is Avro and serde.schema == "long":
        data = b"\x0a"
    here, there = serde.deserialize(data, CTX), travelled(serde).deserialize(data, CTX)
    expected = dataclasses.asdict(here) if isinstance(here, Order) and isinstance(there, dict) else here
    assert there == expected


@dataclasses.dataclass
class Paid:
    price: complex
    type: Literal["paid"] = "paid"


@dataclasses.dataclass
class Refunded:
    price: complex
    type: Literal["refunded"] = "refunded"


@pytest.mark.parametrize("kind", [Order, Paid | Refunded], ids=["class", "union"])
def test_a_serde_that_cannot_travel_says_what_to_pass_instead(kind):
    hooked = Json(kind, dec_hook=lambda kind, value: value)
    with pytest.raises(ConfigError, match="pass a function that creates it"):
        recipe_of(hooked)
    assert travelled(lambda: Json(int, dec_hook=lambda kind, value: value)).deserialize(b"5", CTX) == 5


def test_a_class_of_a_script_travels_with_its_defaults_and_its_rules(tmp_path):
    """In a process that does not have the class: only the bytes arrive."""
    made = tmp_path / "recipe"
    script = f"""
from __future__ import annotations
import dataclasses, pickle
from ottla.serdes import Json
from ottla.spark.values.portable import recipe_of

@dataclasses.dataclass
class Line:
    count: int

@dataclasses.dataclass
class Order:
    lines: list[Line]
    note: str = "none"

    def __post_init__(self):
        if not self.lines:
            raise ValueError("an order has lines")

open({str(made)!r}, "wb").write(pickle.dumps(recipe_of(Json(Order))))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    serde = pickle.loads(made.read_bytes())()
    order = serde.deserialize(b'{"lines": [{"count": 1}]}', CTX)
    assert (order.lines[0].count, order.note) == (1, "none")
    assert serde.deserialize(b'{"lines": []}', CTX).kind == "invalid"
    assert serde.deserialize(b"{}", CTX).kind == "invalid"


def _order_class():
    """A class that protoc would have generated: no module of it can be imported anywhere."""
    from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="portable.proto", package="portable", syntax="proto3", dependency=["google/protobuf/duration.proto"]
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="took",
        number=2,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_OPTIONAL,
        type_name=".google.protobuf.Duration",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(duration_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("portable.Order"))


def _is_numbered(order):
    if not order.id:
        raise ValueError("an order has a number")


def test_a_message_class_travels_as_its_files():
    order = _order_class()
    there = travelled(Protobuf(order, check=_is_numbered))
    message = order(id=5)
    message.took.seconds = 3
    found = there.deserialize(message.SerializeToString(), CTX)
    assert (found.id, found.took.seconds) == (5, 3)
    assert there.deserialize(b"", CTX).kind == "invalid"
    assert there.deserialize(b"\xff", CTX).kind == "malformed"


@pytest.mark.spark
def test_messages_are_columns_in_a_frame(topics, kafka, make_topic):
    topic, order = make_topic(), _order_class()
    message = order(id=5)
    message.took.seconds = 3
    kafka.produce(topic, [message.SerializeToString(), b"", b"\xff"])
    frame = read(
        topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, value=Protobuf(order, check=_is_numbered)
    )
    good, bad = split(frame)
    assert [(r.value.id, r.value.took.total_seconds()) for r in good.collect()] == [(5, 3.0)]
    assert {(r._error.kind, bytes(r.value)) for r in bad.collect()} == {("invalid", b""), ("malformed", b"\xff")}
