"""Bytes, text and integers, byte for byte as Kafka's own `BytesSerializer`, `StringSerializer` and `LongSerializer`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ottla.errors import SerializationError
from ottla.records import Malformed
from ottla.serdes.base import Serde, SerdeContext, malformed, type_name

_INT64 = struct.Struct(">q")


class Bytes(Serde[bytes]):
    """The bytes themselves. Accepts anything with the buffer protocol, gives `bytes`."""

    __slots__ = ()

    @property
    def value_type(self) -> type[bytes]:
        return bytes

    def serialize(self, value: bytes | bytearray | memoryview | None, ctx: SerdeContext) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise SerializationError(f"{ctx.topic} {ctx.part}: expected bytes, got {type_name(value)}")

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> bytes | Malformed | None:
        return data

    def deserialize_many(self, data: Sequence[bytes | None], ctx: SerdeContext) -> list[bytes | Malformed | None]:
        return list(data)


class Str(Serde[str]):
    """Text as UTF-8."""

    __slots__ = ()

    @property
    def value_type(self) -> type[str]:
        return str

    def serialize(self, value: str | None, ctx: SerdeContext) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerializationError(f"{ctx.topic} {ctx.part}: expected str, got {type_name(value)}")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            # A lone surrogate, usually text that was read with errors="surrogateescape".
            raise SerializationError(f"{ctx.topic} {ctx.part}: {error}") from error

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> str | Malformed | None:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            return malformed(data, ctx, error, what="not UTF-8")


class Int64(Serde[int]):
    """A signed 64-bit integer, 8 bytes, big-endian."""

    __slots__ = ()

    @property
    def value_type(self) -> type[int]:
        return int

    def serialize(self, value: int | None, ctx: SerdeContext) -> bytes | None:
        if value is None:
            return None
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer:
            raise SerializationError(f"{ctx.topic} {ctx.part}: expected int, got {type_name(value)}")
        try:
            return _INT64.pack(value)
        except struct.error:
            raise SerializationError(f"{ctx.topic} {ctx.part}: {value} does not fit 64 bits") from None

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> int | Malformed | None:
        if data is None:
            return None
        if len(data) != 8:
            return malformed(data, ctx, None, f"an int64 is 8 bytes, found {len(data)}")
        number: int = _INT64.unpack(data)[0]
        return number
