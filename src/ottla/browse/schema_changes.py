"""Changes of a registry: each is planned and shown before it is made, by commands and pages alike.

A deletion is soft: the ids go on answering, so that records with them stay readable. What is deleted is in an undo file
before, which `schema_restoring` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ottla.browse.schema_items import reference_items
from ottla.errors import InputError
from ottla.foreign_json import read_json
from ottla.serdes.compatibility_levels import LEVELS, comparisons
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema, SchemaVersions
    from ottla.serdes.registry_admin import RegistryAdmin

UNDO_SCHEMA: Final = "ottla.schemas.undo/1"


@fact
class Registration:
    """A schema that becomes the next version of a subject."""

    subject: str
    schema: RegisteredSchema
    existing: int | None
    """The version that the schema already is; None if it is new."""
    problems: tuple[str, ...]
    """Why the registry will refuse it. Empty if it will not."""
    not_compared: tuple[str, ...] = ()
    """Why some versions could not be compared."""
    is_new_subject: bool

    @property
    def item(self) -> dict[str, Any]:
        """The item of `schemas.register/1`."""
        return {
            "subject": self.subject,
            "type": self.schema.type,
            "result": self.result,
            "version": self.existing,
            "problems": list(self.problems),
        }

    @property
    def result(self) -> str:
        """`registered` (nothing to do), `incompatible`, `new subject` or `compatible`."""
        if self.existing is not None:
            return "registered"
        return "incompatible" if self.problems else "new subject" if self.is_new_subject else "compatible"


@fact
class Deletion:
    """Versions of a subject that are deleted."""

    subject: str
    versions: tuple[RegisteredSchema, ...]
    is_whole: bool
    """All versions that the subject has."""
    level: str | None
    """The subject's own compatibility level, which is removed with its last version."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of `schemas.delete/1`."""
        return [
            {"subject": self.subject, "version": each.version, "id": each.id, "type": each.type}
            for each in self.versions
        ]


def plan_registration(
    registry: RegistryAdmin,
    subject: str,
    schema: RegisteredSchema,
    *,
    level: str | None = None,
    planned: Mapping[tuple[str, int], RegisteredSchema] | None = None,
) -> Registration:
    """Return what registering a schema would do. Raises `ConfigError` for text that is no schema.

    `level` is the compatibility level that the subject will have by then, and `planned` are versions that will be
    registered before it. A registry compares by the level and the versions that it has, so then the rules of the format
    are applied here.
    """
    from ottla.serdes.registry import UnknownSchema

    numbers = registry.versions(subject)
    versions = _PlannedVersions(registry, planned or {})
    is_ahead = any((each.subject, each.version) in versions.planned for each in schema.references)
    existing = None
    if schema.type == "AVRO":  # a registry compares with versions, and does not look at the schema where there are none
        from ottla.serdes.avro import references_of
        from ottla.serdes.avro_codec import parse

        parse(read_json(schema.text), using=references_of(versions, schema))
    if numbers and not is_ahead:
        try:
            existing = registry.version_of(subject, schema.text, schema.type, schema.references)
        except UnknownSchema:
            existing = None
    problems: list[str] = []
    not_compared: list[str] = []
    if existing is None and level is None and not is_ahead:
        problems = registry.incompatibilities(subject, schema.text, schema.type, schema.references)
    elif existing is None and numbers:
        earlier = [registry.version(subject, number) for number in numbers]
        if level is None:
            level = registry.level(subject) or registry.level() or "NONE"
        problems, not_compared = _by_rules(versions, schema, earlier, level)
    return Registration(
        subject=subject,
        schema=schema,
        existing=existing,
        problems=tuple(dict.fromkeys(problems)),
        not_compared=tuple(dict.fromkeys(not_compared)),
        is_new_subject=not numbers,
    )


def _by_rules(
    versions: SchemaVersions, schema: RegisteredSchema, earlier: Sequence[RegisteredSchema], level: str
) -> tuple[list[str], list[str]]:
    """Return why the schema cannot follow the earlier ones at a level, and what could not be compared."""
    from ottla.browse.schema_differences import NotComparable, registry_problems

    problems, not_compared = [], []
    for reader, writer in comparisons(schema, earlier, level):
        try:
            problems += registry_problems(versions, reader=reader, writer=writer)
        except NotComparable as error:
            not_compared.append(str(error))
    return problems, not_compared


class _PlannedVersions:
    """The versions of a registry, with those that a plan adds."""

    def __init__(self, registry: RegistryAdmin, planned: Mapping[tuple[str, int], RegisteredSchema]) -> None:
        self._registry = registry
        self.planned = planned

    def version(
        self, subject: str, version: int | Literal["latest"] = "latest", *, deleted: bool = False
    ) -> RegisteredSchema:
        """Return one version, as `SchemaRegistry.version`."""
        found = self.planned.get((subject, version)) if version != "latest" else None
        return self._registry.version(subject, version, deleted=deleted) if found is None else found


def register(registry: RegistryAdmin, plan: Registration) -> tuple[int, int]:
    """Register the schema. Returns its version and its id."""
    schema = plan.schema
    schema_id = registry.register(plan.subject, schema.text, schema.type, schema.references)
    return registry.version_of(plan.subject, schema.text, schema.type, schema.references), schema_id


def plan_deletion(registry: RegistryAdmin, subject: str, versions: Sequence[int] = ()) -> Deletion:
    """Return what deleting these versions, or all, would do. Raises `UnknownSchema` for one that is not there, and
    `InputError` for one that other schemas refer to."""
    there = registry.all_versions(subject)
    wanted = tuple(registry.version(subject, each) for each in sorted(set(versions)) or there)
    for each in wanted:
        used_by = [f"{user} version {at}" for id in _referring(registry, each) for user, at in registry.uses(id)]
        if used_by:
            raise InputError(f"{subject} version {each.version}: found in use by {', '.join(used_by[:20])}")
    return Deletion(
        subject=subject,
        versions=wanted,
        is_whole={each.version for each in wanted} >= set(there),
        level=registry.level(subject),
    )


def delete(registry: RegistryAdmin, plan: Deletion, undo_file: Path) -> None:
    """Write the undo file, then delete. A version that is gone already is no error: the request may have been sent
    twice. Raises `InputError`, and deletes nothing, if the file cannot be written or the subject has changed."""
    from ottla.admin.facts.facts_file import write_whole
    from ottla.serdes.registry import UnknownSchema

    there = registry.all_versions(plan.subject)
    wanted = [each.version for each in plan.versions if each.version is not None]
    if plan.is_whole and set(there) != set(wanted):
        raise InputError(f"{plan.subject}: found versions {there}, planned {wanted}: plan again")
    write_whole(undo_file, undo_document(registry.url, plan))
    for number in wanted:
        try:
            registry.delete_version(plan.subject, number)
        except UnknownSchema:
            if number in registry.versions(plan.subject):
                raise


def undo_document(url: str, plan: Deletion) -> bytes:
    """Return the undo file of a deletion."""
    document = {
        "schema": UNDO_SCHEMA,
        "registry": url,
        "subject": plan.subject,
        "compatibility": plan.level,
        "versions": [
            {
                "version": each.version,
                "id": each.id,
                "type": each.type,
                "text": each.text,
                "references": reference_items(each.references),
            }
            for each in plan.versions
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


@fact
class LevelChange:
    """The compatibility level of a subject, or of the registry, that is set or removed."""

    subject: str | None
    old: str | None
    level: str | None
    """None removes a subject's own, so that the registry's applies."""

    @property
    def is_change(self) -> bool:
        """True if something is to be done."""
        return self.old != self.level

    @property
    def item(self) -> dict[str, Any]:
        """The item of `schemas.set-compatibility/1`."""
        return {"subject": self.subject, "old_level": self.old, "level": self.level}


def plan_level(registry: RegistryAdmin, subject: str | None, level: str | None) -> LevelChange:
    """Return the change of a level. Raises `InputError` for the removal of the registry's."""
    if subject is None and level is None:
        raise InputError("LEVEL: found nothing, wanted the level of the registry: it always has one")
    return LevelChange(subject=subject, old=registry.level(subject), level=level)


def set_level(registry: RegistryAdmin, change: LevelChange) -> None:
    """Set or remove the level."""
    if change.level is not None:
        registry.set_compatibility(change.level, change.subject)
    elif change.subject is not None:
        registry.unset_level(change.subject)


def checked_level(level: str, *, where: str = "LEVEL") -> str:
    """Return a compatibility level in capitals. Raises `InputError`, which begins with `where`."""
    if level.upper() not in LEVELS:
        raise InputError(f"{where}: found {level[:100]!r}, wanted one of {', '.join(LEVELS)}")
    return level.upper()


def _referring(registry: RegistryAdmin, schema: RegisteredSchema) -> list[int]:
    assert schema.subject is not None
    assert schema.version is not None
    return registry.referenced_by(schema.subject, schema.version)
