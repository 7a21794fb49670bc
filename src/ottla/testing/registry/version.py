"""One version of a subject, and whether it can follow those before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ottla.browse.schema_differences import NotComparable, registry_problems
from ottla.serdes.compatibility_levels import comparisons
from ottla.serdes.registered_schema import RegisteredSchema, SchemaReference, SchemaType


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    type: SchemaType
    schema: str
    references: tuple[tuple[str, str, int], ...] = ()
    deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "schema": self.schema,
            **self.type_and_references,
        }
        return answer

    @property
    def type_and_references(self) -> dict[str, Any]:
        """Return the fields of a response that Avro without references does not have."""
        shown: dict[str, Any] = {} if self.type == "AVRO" else {"schemaType": self.type}
        if self.references:
            shown["references"] = [
                {"name": name, "subject": subject, "version": number} for name, subject, number in self.references
            ]
        return shown

    @property
    def as_registered(self) -> RegisteredSchema:
        """Return the version as a client of the registry has it."""
        return RegisteredSchema(
            id=self.id,
            type=self.type,
            text=self.schema,
            references=tuple(SchemaReference(*each) for each in self.references),
            subject=self.subject,
            version=self.version,
        )


def incompatibilities(
    wanted: Version, earlier: Sequence[Version], level: str, *, find: Callable[..., Version]
) -> list[str]:
    """Return why a version cannot follow the earlier ones, which are the oldest first. `find` returns a version that a
    schema refers to."""
    found: list[str] = []
    for reader, writer in comparisons(wanted.as_registered, [each.as_registered for each in earlier], level):
        try:
            found += registry_problems(_Lookup(find), reader=reader, writer=writer)
        except NotComparable as error:
            found.append(f"not compared: {error}; the embedded registry takes it at the level NONE only")
    return list(dict.fromkeys(found))


class _Lookup:
    """The versions of a registry, for the rules that follow references."""

    def __init__(self, find: Callable[..., Version]) -> None:
        self._find = find

    def version(
        self, subject: str, version: int | Literal["latest"] = "latest", *, deleted: bool = False
    ) -> RegisteredSchema:
        return self._find(subject, str(version), deleted=deleted).as_registered


def is_same(version: Version, wanted: Version) -> bool:
    """Return whether a registry counts both as the same schema."""
    if (version.type, version.references) != (wanted.type, wanted.references):
        return False
    if version.type == "PROTOBUF":
        return version.schema == wanted.schema
    is_same: bool = json.loads(version.schema) == json.loads(wanted.schema)
    return is_same
