"""Where a record says of which type it is, read before its value is decoded.

    TagHeader("ce_type")        a header
    TagField("type")            a field of a JSON object
    SchemaName(registry)        the name of the record or message whose schema id stands in front of the value

A record without a tag (no such header or field, a tombstone) has None. One whose tag cannot be read is `Malformed`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ottla.errors import ConfigError, RegistryUnavailable
from ottla.foreign_json import read_json
from ottla.records import TRACEPARENT, Malformed, Record, packed_headers_of_all
from ottla.serdes.base import SerdeContext, invalid, malformed
from ottla.serdes.framing import has_unseen_id
from ottla.serdes.lookups import Lookups
from ottla.serdes.models import explain
from ottla.serdes.protobuf_files import MessagePlace, messages_in, names_at
from ottla.serdes.registered_schema import RegisteredSchema
from ottla.serdes.registry import SchemaRegistry, UnknownSchema, UnusableSchema
from ottla.serdes.wire_format import HEADER_BYTES, NotFramed, message_indexes, schema_id_of
from ottla.showing import shown

_MOST_TEXTS: Final = 1_000
"""Tags that are kept decoded. Those of hostile headers are many."""

_LONGEST: Final = 249
"""Characters of a tag. It is looked up, logged and may be in an error."""

_FIRST_MESSAGE_BYTES: Final = HEADER_BYTES + 1
"""A value whose Protobuf message is the first of its file begins with so many bytes."""


class Tag(ABC):
    """Reads the type of a record. Thread-safe."""

    __slots__ = ()

    @abstractmethod
    def tag_of(self, record: Record[Any]) -> str | Malformed | None:
        """Return the tag, None without one, `Malformed` if it cannot be read. Raises `RegistryUnavailable` only."""

    def tags_of(self, records: Sequence[Record[Any]]) -> list[str | Malformed | None]:
        """Return the tag of each record, in order. Tags override it where that is cheaper than a loop."""
        tag_of = self.tag_of
        return [tag_of(record) for record in records]

    def would_block(self, data: Sequence[bytes | None]) -> bool:
        """Return whether reading the tags of these values waits for the network."""
        return False


class TagHeader(Tag):
    """The last header of this name, as text. Raises `ConfigError` for a name that is empty or no text."""

    __slots__ = ("_texts", "name")

    def __init__(self, name: str) -> None:
        self.name = _checked("TagHeader", name)
        self._texts: dict[bytes | None, str | None] = {None: None}

    def tag_of(self, record: Record[Any]) -> str | Malformed | None:
        value = record.header(self.name)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            return malformed(record.raw_value, _context(record), error, what=f"header {self.name} is not UTF-8")

    def tags_of(self, records: Sequence[Record[Any]]) -> list[str | Malformed | None]:
        # Terse, for the hot path: 0.1 µs for a record with two headers; `tag_of` takes 0.3.
        name, texts = self.name, self._texts
        tags: list[str | Malformed | None] = []
        for record, headers in zip(records, packed_headers_of_all(records), strict=True):
            value = None
            if isinstance(headers, bytes):  # a trace alone
                value = headers if name == TRACEPARENT else None
            elif headers:
                for header, found in headers:
                    if header == name:
                        value = found
            try:
                tags.append(texts[value])
            except KeyError:
                tag = self.tag_of(record)
                if len(texts) < _MOST_TEXTS and tag.__class__ is str:
                    texts[value] = tag
                tags.append(tag)
        return tags

    def __repr__(self) -> str:
        return f"TagHeader({self.name!r})"


class TagField(Tag):
    """A field of the JSON object that is the value: text or an integer. Behind a schema id, too. Raises `ConfigError`
    for a name that is empty or no text.
    """

    __slots__ = ("_read", "name")

    def __init__(self, name: str) -> None:
        self.name = _checked("TagField", name)
        # msgspec passes over every other field without making an object of it.
        tagged = msgspec.defstruct("Tagged", [("tag", str | int | None, None)], rename={"tag": self.name}, gc=False)
        self._read: Callable[[bytes], Any] = msgspec.json.Decoder(tagged).decode

    def tag_of(self, record: Record[Any]) -> str | Malformed | None:
        data = record.raw_value
        if data is None:
            return None
        try:
            tag = self._read(data if data[:1] != b"\0" else data[HEADER_BYTES:]).tag
        except msgspec.ValidationError as error:
            return invalid(data, _context(record), error, explain(error), what=f"no field {self.name} with a type")
        except Exception as error:
            return malformed(data, _context(record), error, what="not JSON")
        return str(tag) if tag.__class__ is int else tag

    def tags_of(self, records: Sequence[Record[Any]]) -> list[str | Malformed | None]:
        # Terse, for the hot path: 0.1 µs for a small record, where `tag_of` takes 0.3.
        read = self._read
        try:
            tags = [read(record.raw_value).tag for record in records]  # type: ignore[arg-type]
        except Exception:  # a tombstone, a schema id in front, or what cannot be read: one by one
            return super().tags_of(records)
        if int not in set(map(type, tags)):
            return tags
        texts = {tag: str(tag) if tag.__class__ is int else tag for tag in set(tags)}
        return [texts[tag] for tag in tags]

    def __repr__(self) -> str:
        return f"TagField({self.name!r})"


class SchemaName(Tag):
    """The full name of the Avro record or Protobuf message that was written, as the registry has it: `shop.Order`.

    For values in the registry's wire format. Asks the registry once for each schema id. Raises `ConfigError` for what
    is neither a `SchemaRegistry` nor its address.
    """

    __slots__ = ("_names", "_registry", "_seen")

    def __init__(self, registry: SchemaRegistry | str) -> None:
        self._registry = SchemaRegistry(registry) if isinstance(registry, str) else registry
        if not isinstance(self._registry, SchemaRegistry):
            raise ConfigError(f"SchemaName: found {shown(registry)}, wanted a SchemaRegistry or its address")
        self._names: Lookups[int, str | list[MessagePlace]] = Lookups(
            self._registry.clock, refusals=(UnknownSchema, UnusableSchema)
        )
        self._seen: dict[bytes, str] = {}
        """Names by what values begin with: an id, and of Protobuf the path of its first message."""

    def tag_of(self, record: Record[Any]) -> str | Malformed | None:
        data = record.raw_value
        if data is None:
            return None
        try:
            schema_id = schema_id_of(data)
            named = self._names.found.get(schema_id)
            if named is None:
                named = self._names.get(schema_id, lambda: _named_in(self._registry.schema(schema_id)))
            if isinstance(named, str):
                self._seen[data[:HEADER_BYTES]] = named
                return named
            path, payload = message_indexes(data, HEADER_BYTES)
            found = sorted(names_at(named, path))
        except RegistryUnavailable:
            raise
        except NotFramed as error:
            return malformed(data, _context(record), error, what="not the registry wire format")
        except (UnknownSchema, UnusableSchema) as error:
            return malformed(data, _context(record), error)
        if not found:
            return malformed(data, _context(record), None, f"schema {schema_id} has no message at {list(path)}")
        if payload == _FIRST_MESSAGE_BYTES:
            self._seen[data[:payload]] = found[0]
        return found[0]

    def tags_of(self, records: Sequence[Record[Any]]) -> list[str | Malformed | None]:
        # Terse, for the hot path: 0.1 µs, where `tag_of` takes 0.4.
        name_of, tags = self._seen.get, list[str | Malformed | None]()
        for record in records:
            data = record.raw_value
            known = None if data is None else name_of(data[:HEADER_BYTES]) or name_of(data[:_FIRST_MESSAGE_BYTES])
            tags.append(known or self.tag_of(record))
        return tags

    def would_block(self, data: Sequence[bytes | None]) -> bool:
        return has_unseen_id(data, self._names)

    def __repr__(self) -> str:
        return f"SchemaName({self._registry!r})"


def _named_in(schema: RegisteredSchema) -> str | list[MessagePlace]:
    """Return the name of an Avro record, or the messages of a Protobuf file with their indexes."""
    try:
        if schema.type == "PROTOBUF":
            return messages_in(schema.text)
        found = read_json(schema.text)
    except (ValueError, RecursionError) as error:
        raise UnusableSchema(f"schema {schema.id}: {explain(error)}") from error
    name = found.get("title" if schema.type == "JSON" else "name") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name:
        raise UnusableSchema(f"schema {schema.id} has no name: found {shown(found)}, wanted a named type")
    space = found.get("namespace")
    is_short = schema.type == "AVRO" and "." not in name and isinstance(space, str) and space
    return f"{space}.{name}" if is_short else name


def _context(record: Record[Any]) -> SerdeContext:
    return SerdeContext(record.topic, "value")


def _checked(place: str, name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST:
        raise ConfigError(f"{place}: found {shown(name)} for a name, wanted text of 1 to {_LONGEST} characters")
    return name
