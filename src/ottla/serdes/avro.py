"""Avro by fastavro: a schema and dicts, or a Python type whose schema is derived from it.

    Avro(Order)                         schema derived from the class, values are `Order`
    Avro("order.avsc")                  schema from a file (or a dict, or JSON text), values are dicts
    Avro("order.avsc", type=Order)      schema from the file, values are `Order`
    Avro(Order, registry=registry)      the registry's wire format; the writer's schema is found by its id

*Malformed*: bytes that end before the value does, bytes left over behind it, what the schema does not allow, and a
schema id that the registry does not have.
*Invalid*: bytes that are Avro, and whose value breaks a rule of the type or cannot be resolved to the reader's schema.

A union of several records: a value's class says which record it is written as, or `("full.Name", value)` does, and a
value that could be several is refused. Read without a type, such a record is `("full.Name", {...})`; with a union of
classes, or pydantic models, it is of the class that has its name.

Schema evolution (`writer_schema`, or the registry's): with a derived schema the class decides, as in JSON: its defaults
fill what the writer did not have, and what the class does not have is dropped. With a given schema, Avro's own
resolution rules decide.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import msgspec

from ottla.errors import ConfigError, RegistryUnavailable, SerializationError
from ottla.foreign_json import read_json
from ottla.records import Malformed
from ottla.serdes.avro_branches import writing_steps
from ottla.serdes.avro_check import Checks
from ottla.serdes.avro_classes import InvalidRecordOfUnion, builder_of, of_records
from ottla.serdes.avro_codec import Parsed, Reader, canonical_form, parse, reader, refused, writer
from ottla.serdes.avro_resolve import without_defaults
from ottla.serdes.avro_schema import Schema, derive_schema, load_schema
from ottla.serdes.base import SerdeContext, invalid, type_name
from ottla.serdes.framing import FramedSerde, Framing, has_unseen_id
from ottla.serdes.lookups import Lookups
from ottla.serdes.models import explain, to_plain, type_text
from ottla.serdes.registered_schema import RegisteredSchema, SchemaVersions
from ottla.serdes.registry import SchemaRegistry, UnknownSchema, UnusableSchema, referenced
from ottla.serdes.subjects import SubjectName, topic_name
from ottla.serdes.wire_format import HEADER_BYTES, schema_id_of
from ottla.typevars import T_any as T


class Avro(FramedSerde[T]):
    """Avro's binary encoding, alone or behind a schema id; never a container with the schema in front.

    `schema` is an Avro schema or a Python type to derive one from. Raises `ConfigError` for a wrong schema, and
    for a framing without a registry and a `writer_schema`.
    """

    __slots__ = (
        "_build",
        "_check",
        "_namespace",
        "_of_record",
        "_read",
        "_readers",
        "_resolve_to",
        "_steps",
        "_write",
        "schema",
        "type",
        "writer_schema",
    )

    @overload
    def __init__(
        self,
        schema: builtins.type[T],
        *,
        writer_schema: Schema | Path | None = None,
        namespace: str | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: Schema | Path,
        *,
        type: builtins.type[T],
        writer_schema: Schema | Path | None = None,
        namespace: str | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: Any,
        *,
        type: Any = None,
        writer_schema: Schema | Path | None = None,
        namespace: str | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...

    def __init__(
        self,
        schema: Schema | Path | Any,
        *,
        type: Any = None,
        writer_schema: Schema | Path | None = None,
        namespace: str | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None:
        is_given = isinstance(schema, dict | list | str | Path)
        self.type = type if is_given else schema
        self._namespace = namespace
        self.schema: Schema = load_schema(schema) if is_given else derive_schema(schema, namespace=namespace)
        self.writer_schema: Schema | None = None if writer_schema is None else load_schema(writer_schema)
        own = parse(self.schema)
        self._resolve_to: Parsed | None = own if is_given else None
        self._write = writer(own)
        checks = Checks(own.bodies)
        self._check = checks.type_of(own.schema)
        self._steps = writing_steps(own.schema, own.bodies, checks)
        self._build: Callable[[Any], Any] | None = None if self.type is None else builder_of(self.type)
        self._of_record = of_records(self.type)
        self._framing: Framing | None = None
        self._readers: Lookups[int, Reader] | None = None
        if registry is None:
            written = own if self.writer_schema is None else parse(self.writer_schema, decodes_defaults=False)
            self._read = reader(written, self._resolve_to, of_record=self._of_record)
            return
        if writer_schema is not None:
            raise ConfigError(
                "Avro: give a registry or a writer_schema; a registry knows each record's writer's schema"
            )
        self._read = self._read_framed
        self._framing = Framing(
            registry,
            "AVRO",
            lambda: json.dumps(self.schema),
            record_name=own.schema.get("name") if isinstance(own.schema, dict) else None,
            subject=subject,
            auto_register=auto_register,
        )
        self._readers = Lookups(self._framing.registry.clock, refusals=(UnknownSchema, UnusableSchema))

    @property
    def value_type(self) -> Any:
        return Any if self.type is None else self.type

    def serialize(self, value: T | None, ctx: SerdeContext) -> bytes | None:
        if value is None:
            return None
        prefix = b"" if self._framing is None else self._framing.header(ctx)
        try:
            plain = value if value.__class__ is dict else to_plain(value)
            msgspec.convert(plain, self._check)
            return self._write(plain if self._steps is None else self._steps(plain, value), prefix)
        except Exception as error:
            raise SerializationError(
                f"{ctx.topic} {ctx.part}: {type_name(value)} does not fit the Avro schema: {explain(error)}"
            ) from error

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> T | Malformed | None:
        if data is None:
            return None
        try:
            value = self._read(data)
        except RegistryUnavailable:
            raise
        except InvalidRecordOfUnion as error:
            rule = error.__cause__ or error
            return invalid(data, ctx, rule, explain(rule), what=str(error))
        except Exception as error:
            return refused(data, ctx, error, is_framed=self._framing is not None)
        if self._build is None:
            return value  # type: ignore[no-any-return]
        try:
            return self._build(value)  # type: ignore[no-any-return]
        except Exception as error:
            return invalid(data, ctx, error, explain(error), what=f"not a valid {type_text(self.type)}")

    def deserialize_many(self, data: Sequence[bytes | None], ctx: SerdeContext) -> list[T | Malformed | None]:
        read, build = self._read, self._build
        values: list[Any] = []
        append = values.append
        for item in data:
            if item is None:
                append(None)
                continue
            try:
                value = read(item)
                append(value if build is None else build(value))
            except RegistryUnavailable:
                raise
            except Exception:
                append(self.deserialize(item, ctx))  # again, slowly, to distinguish malformed from invalid
        return values

    def would_block(self, data: Sequence[bytes | None], ctx: SerdeContext) -> bool:
        return self._readers is not None and has_unseen_id(data, self._readers)

    def takes_names_of(self, written: Parsed) -> bool:
        """Return whether resolution finds only names of this serde's own schema in a writer's."""
        own = self._resolve_to
        return own is None or canonical_form(own) == canonical_form(written)

    def _read_framed(self, data: bytes) -> Any:
        assert self._readers is not None
        schema_id = schema_id_of(data)
        read = self._readers.found.get(schema_id)
        if read is None:
            read = self._readers.get(schema_id, lambda: self._reader_for(schema_id))
        return read(data)

    def _reader_for(self, schema_id: int) -> Reader:
        assert self._framing is not None
        registry = self._framing.registry
        written = written_schema(registry, registry.schema(schema_id))
        return reader(written, self._resolve_to, start=HEADER_BYTES, of_record=self._of_record)

    def __reduce__(self) -> Any:
        """Pickle the constructor's arguments, for the workers of Spark."""
        if self._framing is not None:
            raise TypeError("Avro with a registry cannot be pickled: give a function that makes it")
        made_of = self.type if self._resolve_to is None else self.schema
        kind = None if self._resolve_to is None else self.type
        return partial(Avro, made_of, type=kind, writer_schema=self.writer_schema, namespace=self._namespace), ()

    def __repr__(self) -> str:
        shown = self.schema.get("name", self.schema.get("type")) if isinstance(self.schema, dict) else self.schema
        return f"Avro({shown if self.type is None else type_text(self.type)})"


def written_schema(registry: SchemaRegistry, schema: RegisteredSchema) -> Parsed:
    """Return a registered Avro schema with the schemas that it references. Raises `UnusableSchema` if it is no Avro
    schema, and `UnknownSchema` if a referenced one is missing."""
    if schema.type != "AVRO":
        raise UnusableSchema(f"schema {schema.id} is {schema.type}, wanted AVRO")
    try:
        # A writer's defaults and aliases are never used, and registries in Java have taken defaults that are no values.
        using = [without_defaults(each) for each in references_of(registry, schema)]
        return parse(without_defaults(read_json(schema.text)), using=using, decodes_defaults=False)
    except (ConfigError, ValueError, RecursionError) as error:
        raise UnusableSchema(f"schema {schema.id}: {explain(error)}") from error


def references_of(registry: SchemaVersions, schema: RegisteredSchema) -> list[Schema]:
    """Return the referenced schemas, each once, after those that it uses itself."""
    found = referenced(registry, schema, name_of=lambda each: f"{each.subject} version {each.version}")
    return [read_json(used.text) for _, used in found]
