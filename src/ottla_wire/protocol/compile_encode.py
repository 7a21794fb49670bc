"""Compile (message, version) into one Python function that encodes a dict.

The generated code appends small pieces to a list; the caller joins them. Record payloads go in as they are, and their
places are noted, so that a response can be handed to the socket in parts without copying them.

Bodies are dicts. A handler may give one dict for all versions: keys that the schema knows in other versions are
dropped, missing ones take the schema's default, unknown ones raise.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ottla_wire.protocol.exceptions import SchemaError
from ottla_wire.protocol.message import Message
from ottla_wire.protocol.primitives import ONE_BYTE_UVARINTS, SHORT, encode_uvarint, short_writers, uuid_bytes
from ottla_wire.protocol.region import Region
from ottla_wire.protocol.schema import FIXED_FORMATS, Field, MessageSchema, Struct
from ottla_wire.protocol.source import Source, locate

# Appends to `pieces`; `marks` receives the index before and behind each record payload.
Encoder = Callable[[Any, list[Any], list[int]], None]

_FAILURES = (SchemaError, struct_module.error, TypeError, AttributeError, ValueError, KeyError, OverflowError)


class _Missing:
    """A tagged field that the caller did not give."""


MISSING = _Missing()


def compile_encoder(schema: MessageSchema, version: int) -> Encoder:
    title = f"{schema.name} v{version}"
    source = Source(f"<encoder of {title}>")
    _EncoderWriter(source, version, schema.is_flexible(version)).write_function(schema.struct)
    function, fields = source.compile("encode")

    def encode(body: Any, pieces: list[Any], marks: list[int]) -> None:
        try:
            function(body, pieces, marks)
        except _FAILURES as error:
            field, _ = locate(error.__traceback__, source.filename, fields)
            place = f"{title}, field {field}" if field else title
            raise SchemaError(f"{place}: {error}") from error

    return encode


class Completer:
    """Turns whatever the caller gave for a struct into a dict with every field of the version, or refuses it."""

    def __init__(self, struct: Struct, version: int) -> None:
        self.known = frozenset(member.name for member in struct.fields)
        self._name = struct.name
        # Encoded, never given away: all bodies share the lists and dicts among them.
        self._defaults = {member.name: member.default_value() for member in struct.fields_of(version)}

    def complete(self, given: Any) -> dict[str, Any]:
        if isinstance(given, Message):
            given = {name: getattr(given, name) for name in given.FIELDS}
        if not isinstance(given, Mapping):
            raise SchemaError(f"{self._name} is given as {type(given).__name__}, wanted a dict")
        self.check(given)
        return {**self._defaults, **given}  # fields of other versions stay in it: nobody reads them

    def check(self, given: Mapping[str, Any]) -> None:
        if not given.keys() <= self.known:
            unknown = sorted(given.keys() - self.known)
            raise SchemaError(f"{self._name} has no field {', '.join(unknown)}")


class _EncoderWriter:
    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # fixed-width writes waiting to be merged: (format, expression)
        self.pieces = "pieces"
        source.names.update(
            Incomplete=(KeyError, TypeError, AttributeError, IndexError),
            MISSING=MISSING,
            UV=ONE_BYTE_UVARINTS,
            pack_many=pack_many,
            uvarint=encode_uvarint,
            uuid_bytes=uuid_bytes,
            SchemaError=SchemaError,
        )

    def write_function(self, root: Struct) -> None:
        with self.source.block("def encode(d, pieces, marks):"):
            self.source.emit("w = pieces.append")
            self.write_struct(root, "d", path="")
            self.flush()

    def write_struct(self, struct: Struct, given: str, path: str) -> None:
        emit, block = self.source.emit, self.source.block
        fields = struct.fields_of(self.version)
        plain = [member for member in fields if not member.is_tagged(self.version, self.flexible)]
        tagged = [member for member in fields if member.is_tagged(self.version, self.flexible)]
        completer = self.source.bind("S", Completer(struct, self.version))
        known = self.source.bind("K", self.source.names[completer].known)
        local = {member.name: self.source.unique("v") for member in fields}
        body = self.source.unique("d")
        emit(f"{body} = {given}")
        reads = "; ".join(f"{local[member.name]} = {body}[{member.name!r}]" for member in plain) or f"{body}.keys"
        with block("while True:"):  # once more at the most: nothing is missing in what was completed
            emit(f"try: {reads}; break")
            emit(f"except Incomplete: {body} = {completer}.complete({body})")
        # All required keys are there, so only a longer dict can hold an unknown one.
        emit(f"if len({body}) > {len(plain)} and not {body}.keys() <= {known}: {completer}.check({body})")
        for member in plain:
            self.write_field(member, local[member.name], path)
        if self.flexible:
            self.write_tags(tagged, body, local, path)

    def write_field(self, member: Field, value: str, path: str) -> None:
        self.source.field = f"{path}{member.name}"
        nullable = self.version in member.nullable
        if member.is_array:
            self.write_array(member, value, nullable)
        elif member.struct is not None:
            self.write_nested(member.struct, value, nullable)
        elif member.type in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[member.type], self.fixed(member.type, value)))
        else:
            self.write_variable(member.type, value, nullable)

    def fixed(self, kind: str, value: str) -> str:
        return f"uuid_bytes({value})" if kind == "uuid" else value

    def write_nested(self, struct: Struct, value: str, nullable: bool) -> None:
        path = f"{self.source.field}."
        if not nullable:
            self.write_struct(struct, value, path)
            return
        self.flush()
        with self.source.block(f"if {value} is None:"):
            self.source.emit("w(b'\\xff')")
        with self.source.block("else:"):
            self.run.append(("B", "1"))
            self.write_struct(struct, value, path)
            self.flush()

    def write_variable(self, kind: str, value: str, nullable: bool) -> None:
        emit, block = self.source.emit, self.source.block
        if kind == "records":
            self.write_records(value, nullable)
            return
        size, content = self.source.unique("n"), self.source.unique("s")
        encoded = f"{value}.encode()" if kind == "string" else self.source.bind("bytes_of", bytes_of) + f"({value})"
        if nullable:
            with block(f"if {value} is None:"):
                emit(f"{content} = b''; {size} = -1")
            with block("else:"):
                emit(f"{content} = {encoded}; {size} = len({content})")
        else:
            emit(f"{content} = {encoded}; {size} = len({content})")
        self.write_length(size, "h" if kind == "string" else "i")
        emit(f"w({content})")

    def write_records(self, value: str, nullable: bool) -> None:
        emit, block = self.source.emit, self.source.block
        size = self.source.unique("n")
        parts = self.source.unique("s")
        with block(f"if {value} is None:"):
            emit(f"{size} = -1; {parts} = ()" if nullable else "raise SchemaError('records may not be null here')")
        with block(f"elif type({value}) is list:"):
            measure = self.source.bind("size_of", size_of)
            emit(f"{parts} = {value}; {size} = sum(map({measure}, {parts}))")
        with block("else:"):
            emit(f"{parts} = ({value},); {size} = {self.source.bind('size_of', size_of)}({value})")
        self.write_length(size, "i")
        with block(f"if {size} > 0:"):
            emit("marks.append(len(pieces))")
            emit(f"pieces.extend({parts})")
            emit("marks.append(len(pieces))")

    def write_array(self, member: Field, value: str, nullable: bool) -> None:
        emit, block = self.source.emit, self.source.block
        count = self.source.unique("n")
        if nullable:
            with block(f"if {value} is None:"):
                emit(f"{count} = -1; {value} = ()")
            with block("else:"):
                emit(f"{count} = len({value})")
        else:
            emit(f"{count} = len({value})")
        self.write_length(count, "i")
        if member.type in FIXED_FORMATS and member.type != "uuid":
            code = FIXED_FORMATS[member.type]
            short = self.source.bind("short", short_writers(code))
            emit(f"if 0 < {count} < {SHORT}: w({short}[{count}](*{value}))")
            emit(f"elif {count} > 0: w(pack_many({count}, {code!r}, {value}))")
            return
        item = self.source.unique("e")
        with block(f"for {item} in {value}:"):
            if member.struct is not None:
                self.write_struct(member.struct, item, f"{self.source.field}.")
            elif member.type == "uuid":
                emit(f"w(uuid_bytes({item}))")
            else:
                self.write_variable(member.type, item, nullable=False)
            self.flush()

    def write_length(self, size: str, fixed_format: str) -> None:
        """Write a length or count, -1 for null, together with the fixed-width values before it."""
        if not self.flexible:
            self.run.append((fixed_format, size))
            self.flush()
            return
        if not self.run:
            self.source.emit(f"w(UV[{size} + 1] if {size} < 127 else uvarint({size} + 1))")
            return
        long_form = self.packed(self.run)
        short_form = self.packed([*self.run, ("B", f"{size} + 1")])
        self.run.clear()
        self.source.emit(f"w({short_form} if {size} < 127 else {long_form} + uvarint({size} + 1))")

    def write_tags(self, tagged: list[Field], body: str, local: dict[str, str], path: str) -> None:
        emit, block = self.source.emit, self.source.block
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        tags = self.source.unique("t")
        emit(f"{tags} = []")
        for member in sorted(tagged, key=lambda member: member.tag or 0):
            value = local[member.name]
            emit(f"{value} = {body}.get({member.name!r}, MISSING)")
            self.source.field = f"{path}{member.name}"
            with block(f"if {value} is not MISSING:"):
                encode = self.source.bind("T", _tag_encoder(member, self.version))
                content = self.source.unique("s")
                emit(f"{content} = {encode}({value})")
                emit(f"if {content} is not None: {tags}.append(({member.tag}, {content}))")
        emit(f"w(UV[len({tags})])")
        with block(f"for tag, content in {tags}:"):
            emit("w(uvarint(tag) + uvarint(len(content))); w(content)")

    def flush(self) -> None:
        if self.run:
            self.source.emit(f"w({self.packed(self.run)})")
            self.run.clear()

    def packed(self, run: list[tuple[str, str]]) -> str:
        """Return an expression for the bytes of a run of fixed-width values."""
        formats = " ".join(code for code, _ in run)
        values = ", ".join(value for code, value in run if code != "x")
        if not values:
            return repr(bytes(len(run)))
        name = "write_" + formats.replace(" ", "").replace("?", "t")
        self.source.names.setdefault(name, struct_module.Struct(">" + formats).pack)
        return f"{name}({values})"


def _tag_encoder(member: Field, version: int) -> Callable[[Any], bytes | None]:
    """Encode fields that differ from their defaults, which must not be sent. Compiled when it is first needed: most
    tagged fields are given their defaults."""

    @cache
    def compiled() -> tuple[Callable[..., None], bytes]:
        source = Source("<encoder of a tagged field>")
        writer = _EncoderWriter(source, version, flexible=True)
        with source.block("def encode(value, pieces, marks):"):
            source.emit("w = pieces.append")
            writer.write_field(member, "value", path="")
            writer.flush()
        function, _ = source.compile("encode")
        return function, _joined(function, default)

    def encode(value: Any) -> bytes | None:
        if value == default and type(value) is type(default) and (type(value) in _ALIKE or value == []):
            return None
        function, unsent = compiled()
        content = _joined(function, value)  # comparing encodings compares any type, nested structs included
        return None if content == unsent else content

    default = member.default_value()
    return encode


_ALIKE = (bool, int, str, bytes, type(None))
"""Values of these types that are equal are encoded alike."""


def _joined(function: Callable[..., None], value: Any) -> bytes:
    pieces: list[bytes] = []
    function(value, pieces, [])
    return b"".join(pieces)


def pack_many(count: int, code: str, numbers: Sequence[Any]) -> bytes:
    return struct_module.pack(f">{count}{code}", *numbers)


def bytes_of(value: Any) -> bytes | bytearray | memoryview:
    if isinstance(value, bytes | bytearray):
        return value
    if isinstance(value, memoryview) and value.nbytes == len(value):
        return value
    raise SchemaError(f"wanted bytes, got {type(value).__name__}")


def size_of(value: Any) -> int:
    kind = type(value)
    if kind is bytes or kind is bytearray:
        return len(value)
    if kind is memoryview:
        return value.nbytes  # type: ignore[no-any-return]
    if isinstance(value, Region):
        return len(value)
    raise SchemaError(f"wanted bytes-like records, got {type(value).__name__}")
