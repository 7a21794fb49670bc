"""Shared by the three registry formats: writing and reading the schema id in front of a payload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla.serdes.base import Serde, SerdeContext
from ottla.serdes.lookups import Lookups
from ottla.serdes.registered_schema import RegisteredSchema, SchemaReference, SchemaType
from ottla.serdes.registry import SchemaRegistry
from ottla.serdes.subjects import SubjectName
from ottla.serdes.wire_format import HEADER_BYTES, MAGIC, header

T = TypeVar("T")


class Framing:
    """Chooses the schema id of written payloads. The id of each subject is requested once.

    `auto_register` adds a schema that the subject does not have; without it, it must have been registered before.
    """

    __slots__ = ("_headers", "_record_name", "_references", "_text", "_type", "registers", "registry", "subject")

    def __init__(
        self,
        registry: SchemaRegistry | str,
        type: SchemaType,
        text: Callable[[], str],
        *,
        record_name: str | None,
        subject: SubjectName,
        auto_register: bool,
        references: Callable[[SchemaRegistry, bool], Sequence[SchemaReference]] = lambda registry, auto_register: (),
    ) -> None:
        self.registry = SchemaRegistry(registry) if isinstance(registry, str) else registry
        self._type: SchemaType = type
        self._text = text
        self._record_name = record_name
        self.subject = subject
        self.registers = auto_register
        """Whether the schema is registered when it is first written."""
        self._references = references
        self._headers: Lookups[tuple[str, str], bytes] = Lookups(self.registry.clock)

    def schema(self, ctx: SerdeContext) -> tuple[str, RegisteredSchema]:
        """Return the subject and the schema for this topic and part, without registering it. Waits for the registry
        where the schema refers to others. Raises `ConfigError` for one of those that is not registered."""
        references = tuple(self._references(self.registry, False))
        schema = RegisteredSchema(id=0, type=self._type, text=self._text(), references=references)
        return self.subject(ctx, self._record_name), schema

    def knows(self, ctx: SerdeContext) -> bool:
        """Return whether `header` would not block."""
        return (ctx.topic, ctx.part) in self._headers.found

    def header(self, ctx: SerdeContext) -> bytes:
        """Return the five bytes in front of a payload for this topic and part. Waits for the registry the first
        time."""
        found = self._headers.found.get((ctx.topic, ctx.part))
        return self._headers.get((ctx.topic, ctx.part), lambda: self._ask_for(ctx)) if found is None else found

    def _ask_for(self, ctx: SerdeContext) -> bytes:
        subject = self.subject(ctx, self._record_name)
        ask = self.registry.register if self.registers else self.registry.id_of
        references = self._references(self.registry, self.registers)
        return header(ask(subject, self._text(), self._type, references))


class FramedSerde(Serde[T]):
    """A serde that may write schema ids: `_framing` is None without a registry."""

    __slots__ = ("_framing",)
    _framing: Framing | None

    def is_prepared(self, ctx: SerdeContext) -> bool:
        return self._framing is None or self._framing.knows(ctx)

    def prepare(self, ctx: SerdeContext) -> None:
        if self._framing is not None:
            self._framing.header(ctx)


def has_unseen_id(data: Sequence[bytes | None], readers: Lookups[int, Any]) -> bool:
    """Return whether some of these bytes have a schema id that is not cached."""
    ids = {
        int.from_bytes(item[1:HEADER_BYTES], "big")
        for item in data
        if item is not None and len(item) >= HEADER_BYTES and item[0] == MAGIC
    }
    return any(not readers.answers(schema_id) for schema_id in ids)
