"""What may be sent as it is: bytes. Anything else needs a serde, and the error says so, the same in both shells."""

from __future__ import annotations

from typing import Any

from ottla.errors import SerializationError

__all__ = ["as_bytes", "bad_header"]


def as_bytes(topic: str, part: str, value: Any) -> bytes:
    """Bytes from anything with the buffer protocol; SerializationError for what needs a serde."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"{topic} {part}: expected bytes, got {type(value).__name__}; give the producer a serde: "
        f"Producer(..., {part}=str), Json(...), Avro(...)"
    )


def bad_header(topic: str, name: str, content: object) -> SerializationError:
    """The error for a header whose value is not bytes."""
    return SerializationError(f"{topic}: header {name}: expected bytes or None, got {type(content).__name__}")
