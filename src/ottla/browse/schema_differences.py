"""The differences of two schemas: of their text, and whether each reads the data of the other."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.browse.schema_items import pretty
from ottla.errors import ConfigError, InputError
from ottla.foreign_json import read_json
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema, SchemaVersions

Rule: TypeAlias = Callable[[Any, Any, Any], list[str]]

MOST_LINES: Final = 20_000
"""Lines of a schema that are compared as text: the time grows with their square."""


@fact
class SchemaDifferences:
    """Two schemas compared. The problems are None where the rules of the format could not be applied: see `why_not`."""

    text: tuple[str, ...]
    """A unified diff of the formatted schemas; empty if they are equal."""
    backward: tuple[str, ...] | None
    """Why a reader with the new schema cannot read data of the old one. Empty if it can."""
    forward: tuple[str, ...] | None
    """Why a reader with the old schema cannot read data of the new one. Empty if it can."""
    why_not: str | None = None


def schema_differences(
    registry: SchemaVersions, old: RegisteredSchema, new: RegisteredSchema, *, names: tuple[str, str]
) -> SchemaDifferences:
    """Return the differences. `registry` has the schemas that both refer to. The rules are those of the formats'
    specifications, without a compatibility level: `RegistryAdmin.incompatibilities` returns the registry's own."""
    lines = [pretty(each) for each in (old, new)]
    if max(map(len, lines)) > MOST_LINES:
        raise InputError(f"found a schema of more than {MOST_LINES:,} lines, wanted at most that to compare")
    text = tuple(difflib.unified_diff(lines[0], lines[1], names[0], names[1], lineterm=""))
    try:
        backward = tuple(reading_problems(registry, reader=new, writer=old))
        forward = tuple(reading_problems(registry, reader=old, writer=new))
    except NotComparable as error:
        return SchemaDifferences(text=text, backward=None, forward=None, why_not=str(error))
    return SchemaDifferences(text=text, backward=backward, forward=forward)


class NotComparable(Exception):
    """The rules of the format cannot be applied to these schemas; the message says why."""


def reading_problems(registry: SchemaVersions, *, reader: RegisteredSchema, writer: RegisteredSchema) -> list[str]:
    """Return why data that was written with one schema cannot be read with the other. Empty if it can. Raises
    `NotComparable`."""
    return _problems(_RULES, registry, reader, writer)


def registry_problems(registry: SchemaVersions, *, reader: RegisteredSchema, writer: RegisteredSchema) -> list[str]:
    """Return why a registry's rules do not let `reader` follow `writer`. They are those of `reading_problems`, but for
    JSON Schema: a field that an open object does not declare can have any value. Raises `NotComparable`."""
    return _problems({**_RULES, "JSON": _json_by_registry}, registry, reader, writer)


def _problems(
    rules: Mapping[str, Rule], registry: SchemaVersions, reader: RegisteredSchema, writer: RegisteredSchema
) -> list[str]:
    if reader.type != writer.type:
        return [f"/: reader wants {reader.type}, writer has {writer.type}"]
    try:
        return rules[reader.type](registry, reader, writer)
    except KeyError:
        raise NotComparable(f"there are no rules for {reader.type}") from None
    except (ConfigError, InputError, ValueError, LookupError, RecursionError) as error:
        raise NotComparable(f"{type(error).__name__}: {error}"[:500]) from error


def _avro(registry: SchemaVersions, reader: RegisteredSchema, writer: RegisteredSchema) -> list[str]:
    from ottla.serdes.avro import references_of
    from ottla.serdes.avro_compatibility import reading_problems as avro_problems

    try:
        return avro_problems(
            reader=read_json(reader.text),
            writer=read_json(writer.text),
            reader_uses=references_of(registry, reader),
            writer_uses=references_of(registry, writer),
        )
    except (ConfigError, InputError, LookupError, RecursionError):
        raise
    except Exception as error:
        # fastavro raises whatever it meets in a schema that is none.
        raise ValueError(f"a schema cannot be read: {error}") from error


def _json(registry: SchemaVersions, reader: RegisteredSchema, writer: RegisteredSchema) -> list[str]:
    from ottla.asyncapi.json_compatibility import reading_problems as json_problems

    wanted, written = _documents(reader, writer)
    return json_problems(reader=wanted, writer=written, reader_document=wanted, writer_document=written)


def _json_by_registry(registry: SchemaVersions, reader: RegisteredSchema, writer: RegisteredSchema) -> list[str]:
    from ottla.asyncapi import json_compatibility

    wanted, written = _documents(reader, writer)
    return json_compatibility.registry_problems(reader=wanted, writer=written)


def _documents(reader: RegisteredSchema, writer: RegisteredSchema) -> tuple[Any, Any]:
    if reader.references or writer.references:
        raise ValueError("JSON Schemas with references are compared by the registry only")
    return read_json(reader.text), read_json(writer.text)


def _protobuf(registry: SchemaVersions, reader: RegisteredSchema, writer: RegisteredSchema) -> list[str]:
    from ottla.asyncapi.protobuf_compatibility import reading_problems as protobuf_problems
    from ottla.serdes.protobuf_source import source_of_registered

    try:
        wanted, written = (source_of_registered(each.text) for each in (reader, writer))
    except ImportError as error:
        raise ConfigError("Protobuf needs protobuf: pip install 'ottla[protobuf]'") from error
    return protobuf_problems(reader=wanted, writer=written)


_RULES: Final[dict[str, Rule]] = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}
