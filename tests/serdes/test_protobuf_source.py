"""The source text made of a Protobuf descriptor has every message, field and number of it."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool

from ottla.serdes.protobuf_files import messages_in, names_in
from ottla.serdes.protobuf_source import source_of

WANTED = """syntax = "proto3";
package shop;
enum State {
  OPEN = 0;
  PAID = 1;
}
message Order {
  message Line {
    bytes sku = 1;
  }
  reserved 7 to 8;
  reserved "old";
  int64 id = 1;
  repeated .shop.Order.Line lines = 2;
  map<string, .shop.Order.Line> by_sku = 3;
  optional string note = 4;
  oneof paid_by {
    string card = 5;
    .shop.State state = 6;
  }
}
"""


def test_maps_choices_nested_and_optional_fields_are_written_as_source() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.enum_type.add(name="State").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
        for number, name in enumerate(("OPEN", "PAID"))
    )
    order = file.message_type.add(name="Order", reserved_name=["old"])
    order.reserved_range.add(start=7, end=9)
    order.nested_type.add(name="Line").field.add(name="sku", number=1, type=12, label=1)
    entry = order.nested_type.add(name="BySkuEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, type_name=".shop.Order.Line", label=1)
    order.oneof_decl.add(name="paid_by")
    order.oneof_decl.add(name="_note")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="lines", number=2, type=11, type_name=".shop.Order.Line", label=3)
    order.field.add(name="by_sku", number=3, type=11, type_name=".shop.Order.BySkuEntry", label=3)
    order.field.add(name="note", number=4, type=9, label=1, oneof_index=1, proto3_optional=True)
    order.field.add(name="card", number=5, type=9, label=1, oneof_index=0)
    order.field.add(name="state", number=6, type=14, type_name=".shop.State", label=1, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    text = source_of(pool.FindFileByName("order.proto"))
    assert text == WANTED
    assert names_in(messages_in(text)) == {"shop.Order", "shop.Order.Line"}
