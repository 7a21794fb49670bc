"""Values as columns: `decoder_for(Avro(Order))` decodes a binary column into a struct column and an error column.

Nothing here raises for bad bytes. A row that does not decode is null in the values and has its evidence in the errors,
with the kinds of the SDK's dead letters (`malformed`, `invalid`). Rows that are null decode to null, without an error.

Avro without rules of its own is read column-wise, an order of magnitude faster than row by row; rows that look wrong
there are decided by the serde itself, so both ways give the same values and the same errors.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from ottla.columnar.arrays.binary import binary_parts
from ottla.columnar.values.avro import has_big_union, has_column_reader, read_avro_columns
from ottla.columnar.values.avro_members import shape_of
from ottla.columnar.values.avro_types import AvroNode, parse_avro
from ottla.columnar.values.json_columns import read_json_columns
from ottla.columnar.values.json_types import JsonRecord, json_record
from ottla.columnar.values.protobuf_types import message_type
from ottla.columnar.values.reference_serdes import twin_of
from ottla.columnar.values.rows import ERROR, decode_rows
from ottla.errors import ConfigError
from ottla.serdes import Avro, Bytes, Int64, Json, Protobuf, Serde, SerdeContext, Str
from ottla.serdes.avro import written_schema
from ottla.serdes.avro_codec import parse
from ottla.serdes.avro_schema import derive_schema
from ottla.serdes.models import fields_of, is_model, is_pydantic
from ottla.serdes.registered_schema import RegisteredSchema
from ottla.serdes.registry import SchemaRegistry
from ottla.serdes.wire_format import HEADER_BYTES, MAGIC

_SIMPLE: dict[type[Any], pa.DataType] = {Bytes: pa.binary(), Str: pa.string(), Int64: pa.int64()}


class ColumnDecoder:
    """Decodes binary columns with one serde. `type` is the Arrow type of the values."""

    def __init__(
        self,
        serde: Serde[Any],
        kind: pa.DataType,
        *,
        layout: AvroNode | JsonRecord | None = None,
        twin: Serde[Any] | None = None,
    ) -> None:
        self.serde = serde
        self._twin = twin
        self.type = kind
        self.gives_bytes = type(serde) is Bytes and kind == pa.binary()
        """Whether values are the bytes that they came as: decoding does nothing, and cannot fail."""
        self._layout = layout
        self._shape = shape_of(layout) if isinstance(layout, AvroNode) else None
        self._known_ids: dict[int, bool] = {}

    @property
    def is_columnwise(self) -> bool:
        """Return whether good rows are decoded without a Python object each."""
        return self._layout is not None

    def decode(
        self, values: pa.Array, *, topic: str = "", part: Literal["key", "value"] = "value"
    ) -> tuple[pa.Array, pa.Array]:
        """Return (values, errors): as long as the input; of each row one is null (both, for null).

        Raises `RegistryUnavailable` when a schema id cannot be looked up now: the bytes may be fine.
        """
        ctx = SerdeContext(topic, part)
        as_it_is = self._as_it_is(values)
        if as_it_is is not None:
            return as_it_is, pa.nulls(len(values), ERROR)
        if self._layout is None:
            return decode_rows(self.serde, values.to_pylist(), self.type, ctx, twin=self._twin)
        column, bad = self._read_columns(self._layout, values)
        rows = np.flatnonzero(bad)
        if not len(rows):
            return column, pa.nulls(len(values), ERROR)
        raw = (values if len(rows) == len(values) else values.take(pa.array(rows))).to_pylist()
        doubtful, errors = decode_rows(self.serde, raw, self.type, ctx, twin=self._twin, shape=self._shape)
        if len(rows) == len(values):
            return doubtful, errors
        return _replaced(column, rows, doubtful), _replaced(pa.nulls(len(values), ERROR), rows, errors)

    def _read_columns(self, layout: AvroNode | JsonRecord, values: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any]]:
        """Return the rows that are what they should be, and which are not."""
        framing = self.serde._framing if isinstance(self.serde, Avro | Json) else None
        skip = HEADER_BYTES if framing is not None else 0
        if isinstance(layout, JsonRecord):
            return read_json_columns(layout, values, skip=skip)
        column, bad = read_avro_columns(layout, values, skip=skip)
        if framing is not None:
            ours = self._rows_of_our_schema(values, framing.registry)
            bad |= ~ours & values.is_valid().to_numpy(zero_copy_only=False)
        return column, bad

    def _as_it_is(self, values: pa.Array) -> pa.Array | None:
        """Return a column that needs no decoding: bytes, or text where all of it is UTF-8; None for anything else."""
        if self.gives_bytes and values.type == self.type:
            return values
        if type(self.serde) is Str and self.type == pa.string():
            try:
                return values.cast(pa.string())
            except pa.ArrowInvalid:
                return None  # row by row: which of them it is
        return None

    def _rows_of_our_schema(self, values: pa.Array, registry: SchemaRegistry) -> np.ndarray[Any, Any]:
        """Return which rows were written with the reader's schema, by their schema id.

        The other rows are decoded by the serde, which resolves the writer's schema to ours.
        """
        offsets, data, _ = binary_parts(values)
        framed = np.flatnonzero(np.diff(offsets) >= HEADER_BYTES)
        at = offsets[framed]
        ids = np.zeros(len(framed), dtype=np.int64)
        for byte in range(1, HEADER_BYTES):
            ids = ids << 8 | data[at + byte]
        is_magic = data[at] == MAGIC
        ours = np.zeros(len(values), dtype=np.bool_)
        for schema_id in np.unique(ids[is_magic]).tolist():
            if self._is_our_schema(schema_id, registry):
                ours[framed[is_magic & (ids == schema_id)]] = True
        return ours

    def _is_our_schema(self, schema_id: int, registry: SchemaRegistry) -> bool:
        known = self._known_ids.get(schema_id)
        if known is None:
            try:
                known = self._is_read_as_it_is(registry.schema(schema_id), registry)
            except (ConfigError, ValueError, LookupError):
                return False  # unknown, for now: the serde says so in each row's error
            self._known_ids[schema_id] = known
        return known

    def _is_read_as_it_is(self, found: RegisteredSchema, registry: SchemaRegistry) -> bool:
        if found.type != "AVRO" or found.references:
            return False
        written = written_schema(registry, found)
        # A given schema also says what the records are called, and the serde refuses those of another name.
        return parse_avro(written.schema) == self._layout and (
            not isinstance(self.serde, Avro) or self.serde.takes_names_of(written)
        )


def decoder_for(serde: Serde[Any], *, type: pa.DataType | None = None) -> ColumnDecoder:
    """Return the decoder of a serde. `type` is needed where the serde does not say what its values look like
    (`Json()`)."""
    if isinstance(serde, Avro):
        node = parse_avro(parse(serde.schema).schema)
        columnwise = (
            serde.writer_schema is None and type is None and has_column_reader(node) and not has_rules(serde.type)
        )
        if not columnwise and has_big_union(node):
            raise ConfigError(f"{serde!r}: a union of several types has no column type when decoded row by row")
        return ColumnDecoder(serde, type or node.arrow, layout=node if columnwise else None)
    if type is not None:
        return ColumnDecoder(serde, type)
    if isinstance(serde, Json):
        if serde.type is Any:
            raise ConfigError("Json() does not say what its values look like: use Json(SomeType), or name a type")
        arrow, twin = parse_avro(derive_schema(serde.type)).arrow, twin_of(serde)
        return ColumnDecoder(serde, arrow, layout=json_record((twin or serde).type, arrow), twin=twin)
    if isinstance(serde, Protobuf):
        return ColumnDecoder(serde, message_type(serde.message.DESCRIPTOR))
    for kind, arrow in _SIMPLE.items():
        if isinstance(serde, kind):
            return ColumnDecoder(serde, arrow)
    raise ConfigError(f"{serde!r} does not say what its values look like: name a type")


def has_rules(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return whether values of a type are checked beyond their schema (`__post_init__`, constraints, pydantic
    validators).
    """
    if kind is None or kind in seen:
        return False
    if typing.get_origin(kind) is typing.Annotated:
        return any(isinstance(extra, msgspec.Meta) for extra in kind.__metadata__) or has_rules(
            typing.get_args(kind)[0], seen
        )
    arguments = typing.get_args(kind)
    if arguments:
        return typing.get_origin(kind) is typing.Literal or any(has_rules(a, seen) for a in arguments)
    if not is_model(kind):
        return False
    if is_pydantic(kind) or hasattr(kind, "__post_init__"):
        return True
    if dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or typing.is_typeddict(kind):
        return any(has_rules(field.type, seen | {kind}) for field in fields_of(kind))
    return True


def _replaced(column: pa.Array, rows: np.ndarray[Any, Any], with_values: pa.Array) -> pa.Array:
    """Return the column with these rows replaced."""
    indices = np.arange(len(column), dtype=np.int64)
    indices[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, with_values]).take(pa.array(indices))
