"""A safe use of fastavro: parses a schema, and builds functions that read and write exactly one value of it."""

from __future__ import annotations

import copy
import decimal
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from io import BytesIO
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ottla.errors import ConfigError
from ottla.records import Malformed
from ottla.serdes.avro_check import is_recursive, made_of_nothing, parts_of
from ottla.serdes.avro_classes import OfRecord, named_tuple
from ottla.serdes.avro_resolve import (
    decode_defaults,
    has_several_records,
    names_as_read,
    resolving,
    without_defaults,
)
from ottla.serdes.avro_schema import Schema
from ottla.serdes.base import SerdeContext, invalid, malformed, type_name
from ottla.serdes.models import KEPT_AS_THEY_ARE, explain
from ottla.serdes.registry import UnknownSchema, UnusableSchema
from ottla.serdes.wire_format import NotFramed

Reader: TypeAlias = Callable[[bytes], Any]

_MOST_LONG_BYTES: Final = 10
"""Maximum length of a 64-bit number."""


class Parsed(NamedTuple):
    """A schema parsed by fastavro, its named types by full name, and facts for its use."""

    schema: Any
    bodies: Mapping[str, Any]
    is_recursive: bool
    """Whether it recurses, which is not safe on the C stack."""
    names_records: bool
    """Whether a union has several records: a value then says which it is."""


def parse(schema: Schema, *, using: Sequence[Schema] = (), decodes_defaults: bool = True) -> Parsed:
    """Check and prepare a schema and the schemas it references, each after those that it uses itself.

    The defaults of fields become the values that they stand for; a writer's own are never used, and stay as they are.
    Raises `ConfigError` when one is not an Avro schema, or cannot be read safely.
    """
    fastavro = fastavro_module()
    named: dict[str, Any] = {}
    try:
        for used in using:
            fastavro.parse_schema(used, named_schemas=named)
        parsed = fastavro.parse_schema(schema, named_schemas=named)
    except Exception as error:
        raise ConfigError(f"not an Avro schema: {type_name(error)}: {explain(error)}") from error
    nothing = made_of_nothing(parsed, named)
    if nothing is not None:
        raise ConfigError(f"Avro schema with {nothing}: values of no bytes let a few bytes claim billions")
    if decodes_defaults:
        decode_defaults(named)
    _mark_as_parsed(parsed, named)
    return Parsed(parsed, named, is_recursive(parsed, named), has_several_records(parsed, named))


def _mark_as_parsed(schema: Any, named: Mapping[str, Any]) -> None:
    """Say that a schema is parsed where fastavro does not: it would parse it again for each value."""
    for part in schema if isinstance(schema, list) else [schema]:
        if isinstance(part, dict):
            part.setdefault("__fastavro_parsed", True)
            part.setdefault("__named_schemas", dict(named))


def canonical_form(parsed: Parsed) -> str:
    """Return Avro's parsing canonical form: names and types, without defaults, documentation and logical types."""
    from fastavro.schema import to_parsing_canonical_form

    return str(to_parsing_canonical_form(parsed.schema))


def reader(written: Parsed, resolve_to: Parsed | None, *, start: int = 0, of_record: OfRecord = named_tuple) -> Reader:
    """Return a function that reads exactly one value, from `start` to the end, resolved to a reader's schema if
    given.

    A record of a union that has several is what `of_record` makes of it: `(its full name, the record)`.
    """
    is_recursive = written.is_recursive or (resolve_to is not None and resolve_to.is_recursive)
    read_one = _read_nested() if is_recursive else fastavro_module().schemaless_reader
    writer_schema, reader_schema = _with_exact_decimals(written), None
    finish: Callable[[Any, Any], Any] | None = None
    if resolve_to is not None and without_defaults(resolve_to.schema) != without_defaults(written.schema):
        writer_schema, reader_schema, finish = resolving(writer_schema, written, resolve_to, of_record)
    elif written.names_records:
        read_one = partial(read_one, return_record_name=True)
        finish = names_as_read(written, of_record)

    def read(data: bytes) -> Any:
        stream = BytesIO(data)
        if start:
            stream.seek(start)
        value = read_one(stream, writer_schema, reader_schema)
        if stream.tell() != len(data):
            raise _LeftOver(f"the value ends after {stream.tell()} of {len(data)} bytes")
        return value if finish is None else finish(value, None)

    return read


def _read_nested() -> Callable[..., Any]:
    """Return a reader for recursive schemas. The compiled reader recurses on the C stack, so that a megabyte of nested
    bytes would end the process; the Python one ends in a RecursionError (about 200 levels). Integers are bounded in
    length, as decoding an unbounded one costs ever more per byte."""
    from fastavro import _read_py
    from fastavro.io.binary_decoder import BinaryDecoder

    class Bounded(BinaryDecoder):
        def __init__(self, stream: BytesIO) -> None:
            super().__init__(stream)  # type: ignore[no-untyped-call]
            self._stream = stream

        def read_long(self) -> int:
            number = 0
            for shift in range(0, 7 * _MOST_LONG_BYTES, 7):
                byte = self._stream.read(1)
                if not byte:
                    raise EOFError
                number |= (byte[0] & 0x7F) << shift
                if byte[0] < 0x80 and number < 2**64:
                    return (number >> 1) ^ -(number & 1)
            raise ValueError("an integer of more than 64 bits")

        read_int = read_long

    decoder: Any = Bounded
    read_data: Any = _read_py.read_data

    def read_one(stream: BytesIO, writer_schema: Any, reader_schema: Any, **options: bool) -> Any:
        named: dict[str, dict[str, Any]] = {"writer": {}, "reader": {}}
        parse_schema = fastavro_module().parse_schema
        written = parse_schema(writer_schema, named["writer"])
        wanted = None if reader_schema is None else parse_schema(reader_schema, named["reader"])
        return read_data(decoder(stream), written, named, wanted, options)

    return read_one


def writer(parsed: Parsed) -> Callable[[Any, bytes], bytes]:
    """Return a function that writes one plain value behind a prefix. Fields the schema does not have are refused."""
    schema = parsed.schema
    if parsed.is_recursive:
        from fastavro import _write_py as write_module
    else:
        write_module = fastavro_module()
    write_one, is_nested = write_module.schemaless_writer, parsed.is_recursive

    def write(value: Any, prefix: bytes) -> bytes:
        if is_nested:
            # Even the Python writer chooses union branches in compiled code; msgspec stops at the interpreter's limit.
            msgspec.to_builtins(value, builtin_types=KEPT_AS_THEY_ARE)
        stream = BytesIO()
        if prefix:
            stream.write(prefix)
        write_one(stream, schema, value, strict_allow_default=True)
        return stream.getvalue()

    return write


def refused(data: bytes, ctx: SerdeContext, error: Exception, *, is_framed: bool) -> Malformed:
    """Return the evidence for bytes that a reader did not accept."""
    if type_name(error) == "SchemaResolutionError":
        return invalid(data, ctx, error, str(error), what="cannot be resolved to the reader's schema")
    if isinstance(error, UnknownSchema | UnusableSchema | NotFramed):
        return malformed(data, ctx, error)
    # fastavro reports the end of the bytes as EOFError with or without text, or as an IndexError of its own buffer.
    ends_early = isinstance(error, EOFError) or "string index" in str(error)
    text = f"{len(data)} bytes end before the value does" if ends_early else explain(error)
    hint = "" if is_framed else _looks_like(data)
    return malformed(data, ctx, error, text + hint, what="not Avro of this schema")


def fastavro_module() -> ModuleType:
    """Return fastavro, or raise a `ConfigError` that says how to get it."""
    try:
        import fastavro
    except ImportError as error:
        raise ConfigError("Avro needs fastavro: pip install 'ottla[avro]'") from error
    return fastavro


def _looks_like(data: bytes) -> str:
    if data[:1] == b"\0" and len(data) > 5:
        return f" (starts like the registry wire format, schema id {int.from_bytes(data[1:5], 'big')}: pass a registry)"
    return " (looks like JSON)" if data[:1] in (b"{", b"[") else ""


class _LeftOver(ValueError):
    """Bytes behind the end of the value."""


_OURS: Final = "ottla-decimal"
_KINDS: Final = ("bytes", "fixed")


def _with_exact_decimals(written: Parsed) -> Any:
    """Return a parsed schema that reads decimals to their last digit or refuses them; the schema itself without any.

    fastavro rounds a decimal with more digits than its schema allows, and computes any number of digits first. It finds
    the reader of a logical type by the type's name, so ours has a name of its own.
    """
    parts = (part for whole in (written.schema, *written.bodies.values()) for part in parts_of(whole))
    if not any(isinstance(part, dict) and _is_decimal(part) for part in parts):
        return written.schema
    from fastavro.read import LOGICAL_READERS

    for kind in _KINDS:
        LOGICAL_READERS.setdefault(f"{kind}-{_OURS}", _read)
    changed = copy.deepcopy(written.schema)
    _rename(changed, set())
    return changed


def _read(data: bytes, schema: Any, reader_schema: Any = None) -> decimal.Decimal:
    precision = schema["precision"]
    limit, context = _bounds(precision)
    unscaled = int.from_bytes(data, "big", signed=True)
    if not -limit < unscaled < limit:
        raise ValueError(f"a decimal of {len(data)} bytes has more digits than its precision of {precision}")
    return decimal.Decimal(unscaled).scaleb(-schema.get("scale", 0), context)


@lru_cache(maxsize=256)
def _bounds(precision: int) -> tuple[int, decimal.Context]:
    return 10**precision, decimal.Context(prec=precision)


def _is_decimal(schema: dict[str, Any]) -> bool:
    is_one = schema.get("logicalType") == "decimal" and schema.get("type") in _KINDS
    return is_one and type(schema.get("precision")) is int


def _rename(schema: Any, seen: set[int]) -> None:
    if isinstance(schema, list | dict) and id(schema) not in seen:
        seen.add(id(schema))
        if isinstance(schema, dict) and _is_decimal(schema):
            schema["logicalType"] = _OURS
        for part in schema.values() if isinstance(schema, dict) else schema:
            _rename(part, seen)
