"""Serdes: encode a value to bytes, and decode bytes without ever raising for bad ones.

Three things can be wrong with bytes, and they want three answers:

- *malformed*: the bytes are not this format (truncated, not UTF-8, no such schema). A `Malformed` value.
- *invalid*: the bytes are this format, and the value breaks a rule of the declared type (`__post_init__`, a constraint,
  a missing field). A `Malformed` value with ``kind="invalid"``.
- *not known yet*: the schema registry does not answer. `RegistryUnavailable` is raised, and nothing else ever is: the
  bytes may be fine, so the caller pauses and tries again instead of writing a dead letter.

Null is Kafka's tombstone: None serializes to None, null deserializes to None, in every serde.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ottla.records import Headers, Malformed, Record

T = TypeVar("T")

Part: TypeAlias = Literal["key", "value"]
"""Which part of a record a serde is for."""

MALFORMED: Final = "malformed"
INVALID: Final = "invalid"

ERROR_TEXT_LIMIT: Final = 1_000
"""Maximum length of a decoder's message in characters: it may quote the data, and it is copied to dead letter
headers.
"""


SerdeOf: TypeAlias = "Serde[T] | type[Serde[T]]"
"""A serde, or its class where it takes no arguments."""


class SerdeContext(NamedTuple):
    """Topic and part of the bytes. One per topic and part is enough: create it once, not per record."""

    topic: str
    part: Part = "value"
    """Key or value."""
    headers: Headers = ()


class Serde(ABC, Generic[T]):
    """Turns values of `T` into bytes and back. Stateless or thread-safe: one instance serves every thread."""

    __slots__ = ()

    @property
    def value_type(self) -> Any:
        """Return the type of its values; Any if unknown. Handlers' annotations are checked against it."""
        return Any

    @abstractmethod
    def serialize(self, value: T | None, ctx: SerdeContext) -> bytes | None:
        """Return the bytes of `value`, None for None. Raises `SerializationError` when the value does not fit."""

    @abstractmethod
    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> T | Malformed | None:
        """Return the value in `data`, None for null, `Malformed` for anything else. Raises `RegistryUnavailable`
        only.
        """

    def deserialize_many(self, data: Sequence[bytes | None], ctx: SerdeContext) -> list[T | Malformed | None]:
        """Deserialize each element as `deserialize` does, in order. Serdes override it where a batch is cheaper than a
        loop."""
        deserialize = self.deserialize
        return [deserialize(item, ctx) for item in data]

    def deserialize_records(self, records: Sequence[Record[Any]], ctx: SerdeContext) -> list[T | Malformed | None]:
        """Deserialize the value of each record, in order. Serdes override it that read headers as well."""
        return self.deserialize_many([record.raw_value for record in records], ctx)

    def would_block(self, data: Sequence[bytes | None], ctx: SerdeContext) -> bool:
        """Return whether decoding these bytes would wait for the network (an unseen schema id). An event loop checks
        this first and decodes such a batch in a thread. Always False without a registry."""
        return False

    def is_prepared(self, ctx: SerdeContext) -> bool:
        """Return whether `serialize` for this topic would not block."""
        return True

    def prepare(self, ctx: SerdeContext) -> None:
        """Register the schema, so that the first `serialize` for this topic does not block. May block and raise."""
        return


def malformed(
    data: bytes | None, ctx: SerdeContext, error: BaseException | None, text: str = "", *, what: str = ""
) -> Malformed:
    """Return evidence that `data` is not in the format: `what` was wanted, `text` (by default the error's own) was
    found.
    """
    error_type = "Malformed" if error is None else type_name(error)
    return _evidence(data, ctx, MALFORMED, error_type, text or str(error) or error_type, what)


def invalid(data: bytes | None, ctx: SerdeContext, error: BaseException, text: str, *, what: str = "") -> Malformed:
    """Return evidence that `data` decodes, and that its value breaks a rule of the declared type, which `text`
    explains.

    A decoder wraps what the type itself raised (msgspec does so for `__post_init__`): `error_type` names the original.
    """
    origin = error.__cause__ if isinstance(error.__cause__, Exception) else error
    return _evidence(data, ctx, INVALID, type_name(origin), text, what)


def _evidence(
    data: bytes | None, ctx: SerdeContext, kind: Literal["malformed", "invalid"], error_type: str, text: str, what: str
) -> Malformed:
    text = f"{what}: {text}" if what else text
    if len(text) > ERROR_TEXT_LIMIT:
        text = text[:ERROR_TEXT_LIMIT] + "…"
    return Malformed(part=ctx.part, raw=data, error=text, error_type=error_type, kind=kind)


def type_name(value: Any) -> str:
    """Return the name of a value's type, as error messages show it."""
    return type(value).__name__
