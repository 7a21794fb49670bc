"""What a schema registry has: schemas with their references, and the JSON in which it sends and takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

T = TypeVar("T")
SchemaType: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]


LARGEST_ID: Final = 2**31 - 1
"""Registries number schemas by a Java int. A record with more in front of it has no schema."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses: the name it uses, and the subject and version that it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry keeps it."""

    id: int
    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()
    subject: str | None = None
    version: int | None = None


class SchemaVersions(Protocol):
    """Where the schemas are looked up that others refer to."""

    def version(
        self, subject: str, version: int | Literal["latest"] = "latest", *, deleted: bool = False
    ) -> RegisteredSchema:
        """Return one version of a subject, as `SchemaRegistry.version`."""
        ...


def registered(schema_id: int, answer: Mapping[str, Any]) -> RegisteredSchema:
    """Return the schema of an answer. Raises `KeyError`, `TypeError` or `ValueError` for what no registry sends."""
    type = answer.get("schemaType") or "AVRO"
    return RegisteredSchema(
        id=schema_id,
        type=cast(SchemaType, as_text(type)),
        text=as_text(answer["schema"]),
        references=tuple(
            SchemaReference(as_text(reference["name"]), as_text(reference["subject"]), number(reference["version"]))
            for reference in answer.get("references") or ()
        ),
        subject=answer.get("subject"),
        version=answer.get("version"),
    )


def number(value: Any) -> int:
    """Return an id or a version: what fits into the four bytes in front of a record."""
    if type(value) is int and 0 <= value <= LARGEST_ID:
        return value
    raise ValueError(value)


def as_text(value: Any) -> str:
    """Return a text. Raises `TypeError` for anything else."""
    if isinstance(value, str):
        return value
    raise TypeError(value)


def list_of(kind: type[T], value: Any) -> list[T]:
    """Return a list whose elements all have this type. Raises `TypeError` for anything else."""
    if isinstance(value, list) and all(type(each) is kind for each in value):
        return value
    raise TypeError(value)


def request_body(text: str, type: SchemaType, references: Sequence[SchemaReference]) -> dict[str, Any]:
    """Return the body of a request about a schema."""
    body: dict[str, Any] = {"schema": text}
    if type != "AVRO":  # left out for the oldest registries, which know only Avro
        body["schemaType"] = type
    if references:
        body["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in references]
    return body
