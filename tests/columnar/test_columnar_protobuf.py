"""Protobuf messages as columns: every kind of field, what is not set, what does not decode."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar.values.decoding import decoder_for
from ottla.errors import ConfigError
from ottla.serdes import Protobuf

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int64": pa.int64(),
    "uint64": pa.int64(),
    "int32": pa.int32(),
    "fixed64": pa.int64(),
    "fixed32": pa.int64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "uint32": pa.int64(),
    "sfixed32": pa.int32(),
    "sfixed64": pa.int64(),
    "sint32": pa.int32(),
    "sint64": pa.int64(),
}


def _classes():
    """What protoc generates for a file with a field of every kind."""
    file = descriptor_pb2.FileDescriptorProto(
        name="all/kinds.proto",
        package="all",
        syntax="proto3",
        dependency=[m.DESCRIPTOR.name for m in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)],
    )
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(["NONE", "RED"]):
        colour.value.add(name=name, number=number)
    kinds = file.message_type.add(name="Kinds")
    numbers = iter(range(1, 100))

    def add(name, kind, type_name=None, label=FIELD.LABEL_OPTIONAL, **more):
        kinds.field.add(name=name, number=next(numbers), type=kind, label=label, type_name=type_name, **more)

    for name in SCALARS:
        add(f"a_{name}", getattr(FIELD, f"TYPE_{name.upper()}"))
    add("colour", FIELD.TYPE_ENUM, ".all.Colour")
    add("many", FIELD.TYPE_INT32, label=FIELD.LABEL_REPEATED)
    inner = kinds.nested_type.add(name="Inner")
    inner.field.add(name="text", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    add("inner", FIELD.TYPE_MESSAGE, ".all.Kinds.Inner")
    add("inners", FIELD.TYPE_MESSAGE, ".all.Kinds.Inner", FIELD.LABEL_REPEATED)
    entry = kinds.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=FIELD.TYPE_MESSAGE, label=FIELD.LABEL_OPTIONAL, type_name=".all.Kinds.Inner"
    )
    add("by_name", FIELD.TYPE_MESSAGE, ".all.Kinds.ByNameEntry", FIELD.LABEL_REPEATED)
    add("at", FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add("took", FIELD.TYPE_MESSAGE, ".google.protobuf.Duration")
    add("wrapped", FIELD.TYPE_MESSAGE, ".google.protobuf.UInt32Value")
    add("free", FIELD.TYPE_MESSAGE, ".google.protobuf.Struct")
    kinds.oneof_decl.add(name="_maybe")
    add("maybe", FIELD.TYPE_INT32, proto3_optional=True, oneof_index=0)
    tree = file.message_type.add(name="Tree")
    tree.field.add(
        name="children", number=1, type=FIELD.TYPE_MESSAGE, label=FIELD.LABEL_REPEATED, type_name=".all.Tree"
    )
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"all.{n}")) for n in ("Kinds", "Tree")]


Kinds, Tree = _classes()


def decoded(*values):
    decoder = decoder_for(Protobuf(Kinds))
    raw = [v if isinstance(v, bytes | None) else v.SerializeToString() for v in values]
    column, errors = decoder.decode(pa.array(raw, pa.binary()))
    assert column.type == decoder.type
    return column.to_pylist(), errors.to_pylist()


def test_every_kind_of_field_has_a_column_type():
    kind = decoder_for(Protobuf(Kinds)).type
    assert {name: kind.field(f"a_{name}").type for name in SCALARS} == SCALARS
    inner = pa.struct([("text", pa.string())])
    assert {f.name: f.type for f in kind if not f.name.startswith("a_")} == {
        "colour": pa.string(),
        "many": pa.list_(pa.int32()),
        "inner": inner,
        "inners": pa.list_(inner),
        "by_name": pa.map_(pa.string(), inner),
        "at": pa.timestamp("us", tz="UTC"),
        "took": pa.duration("us"),
        "wrapped": pa.int64(),
        "free": pa.string(),
        "maybe": pa.int32(),
    }


def test_a_message_with_everything_set():
    message = Kinds(colour=1, many=[1, 2], maybe=0)
    message.inner.text = "t"
    message.inners.add(text="u")
    message.by_name["k"].text = "v"
    message.at.seconds, message.at.nanos = 1_700_000_000, 123_456_789
    message.took.seconds = 90
    message.wrapped.value = 2**32 - 1
    message.free.fields["a"].string_value = "b"
    (row,), (error,) = decoded(message)
    assert error is None
    assert {name: value for name, value in row.items() if not name.startswith("a_")} == {
        "colour": "RED",
        "many": [1, 2],
        "inner": {"text": "t"},
        "inners": [{"text": "u"}],
        "by_name": [("k", {"text": "v"})],
        "at": dt.datetime(2023, 11, 14, 22, 13, 20, 123_456, dt.UTC),
        "took": dt.timedelta(seconds=90),
        "wrapped": 2**32 - 1,
        "free": '{"a": "b"}',
        "maybe": 0,
    }


def test_what_is_not_set_is_null_where_the_message_can_tell():
    (row,), _ = decoded(Kinds())
    assert {n for n, v in row.items() if v is None} == {"inner", "at", "took", "wrapped", "free", "maybe"}
    assert (row["colour"], row["many"], row["by_name"], row["a_string"], row["a_bytes"]) == ("NONE", [], [], "", b"")


def test_an_enum_number_without_a_name_is_kept_as_text():
    assert decoded(Kinds(colour=7))[0][0]["colour"] == "7"


def test_bad_rows_have_their_errors_and_good_ones_beside_them_their_values():
    rows, errors = decoded(Kinds(a_int32=1), b"\xff", None, Kinds(a_uint64=2**63), Kinds(a_uint64=2**63 - 1))
    assert [row and row["a_int32"] for row in rows] == [1, None, None, None, 0]
    assert [error and error["kind"] for error in errors] == [None, "malformed", None, "invalid", None]
    assert "does not fit the column type" in errors[3]["message"]


def test_a_message_that_contains_itself_has_no_column_type():
    with pytest.raises(ConfigError, match=r"all.Tree contains itself \(all.Tree > all.Tree\)"):
        decoder_for(Protobuf(Tree))


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**32 - 1),
    st.text(),
    st.binary(),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
)
def test_values_come_back_equal(number, unsigned, text, data, many):
    message = Kinds(a_sint64=number, a_fixed32=unsigned, a_string=text, a_bytes=data, many=many)
    (row,), (error,) = decoded(message)
    assert error is None
    assert (row["a_sint64"], row["a_fixed32"], row["a_string"], row["a_bytes"], row["many"]) == (
        number, unsigned, text, data, many,
    )  # fmt: skip
