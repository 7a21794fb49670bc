"""Restores schemas from the undo file of their deletion.

A restored version keeps its id, and has a new number: registries never use the number of a version twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from ottla.browse.schema_changes import UNDO_SCHEMA, checked_level
from ottla.errors import InputError
from ottla.foreign_json import read_json
from ottla.showing import shown
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema
    from ottla.serdes.registry_admin import RegistryAdmin

_NO_CHECK: Final = "NONE"


@fact
class Restoration:
    """Versions of an undo file, as the subject has them now."""

    subject: str
    level: str | None
    """The subject's own compatibility level when they were deleted, which is set again."""
    versions: tuple[RegisteredSchema, ...]
    level_now: str | None
    existing: tuple[int | None, ...]
    """The version that each is now; None for those that are registered again."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of `schemas.restore/1`."""
        return [
            {
                "subject": self.subject,
                "old_version": each.version,
                "version": now,
                "id": each.id,
                "type": each.type,
                "result": "registered" if now is not None else "registered again",
            }
            for each, now in zip(self.versions, self.existing, strict=True)
        ]

    @property
    def is_change(self) -> bool:
        """True if something is to be done."""
        return None in self.existing or self.level != self.level_now


def plan_restoration(registry: RegistryAdmin, path: Path) -> Restoration:
    """Return what restoring the undo file would do. Raises `InputError` for a file that is none."""
    from ottla.admin.facts.facts_file import read_bounded

    return planned_restoration(registry, read_bounded(path), str(path))


def planned_restoration(registry: RegistryAdmin, content: bytes, source: str) -> Restoration:
    """Return what restoring the content of an undo file would do. Raises `InputError`, which names the source."""
    from ottla.serdes.registry import UnknownSchema

    wanted = "wanted the undo file that `ottla schemas delete` wrote"
    try:
        subject, level, versions = _read_undo(read_json(content))
    except KeyError as error:
        raise InputError(f"{source}: found no field {error}, {wanted}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{source}: {error}, {wanted}") from None
    existing: list[int | None] = []
    for each in versions:
        try:
            existing.append(registry.version_of(subject, each.text, each.type, each.references))
        except UnknownSchema:
            existing.append(None)
    level_now = registry.level(subject)
    return Restoration(subject=subject, level=level, level_now=level_now, versions=versions, existing=tuple(existing))


def restore(registry: RegistryAdmin, plan: Restoration) -> list[str]:
    """Register the versions again, oldest first, and set the subject's level. Returns remarks about ids that changed.

    Versions that the level of today refuses are registered at the level NONE, which is replaced at the end. Restoring
    the same file again finishes what was interrupted.
    """
    found: list[str] = []
    is_open = plan.level_now == _NO_CHECK
    try:
        for each, now in zip(plan.versions, plan.existing, strict=True):
            if now is not None:
                continue
            if not is_open and registry.incompatibilities(plan.subject, each.text, each.type, each.references):
                registry.set_compatibility(_NO_CHECK, plan.subject)
                is_open = True
            schema_id = registry.register(plan.subject, each.text, each.type, each.references)
            if schema_id != each.id:
                found.append(f"{plan.subject}: id {each.id} is {schema_id} now; records with {each.id} are unreadable")
    finally:
        if plan.level is None:
            registry.unset_level(plan.subject)
        else:
            registry.set_compatibility(plan.level, plan.subject)
    return found


def _read_undo(document: Any) -> tuple[str, str | None, tuple[RegisteredSchema, ...]]:
    from ottla.browse.registry_access import checked_subject
    from ottla.serdes.registered_schema import RegisteredSchema, SchemaReference, SchemaType, number

    if not isinstance(document, dict):
        raise TypeError(f"found {shown(document)}")
    if document.get("schema") != UNDO_SCHEMA:
        raise ValueError(f"found a document whose schema is {shown(document.get('schema'))} and not {UNDO_SCHEMA!r}")
    level = document["compatibility"]

    def reference(given: Any) -> SchemaReference:
        return SchemaReference(_text(given["name"]), _text(given["subject"]), number(given["version"]))

    def version(given: Any) -> RegisteredSchema:
        if given["type"] not in get_args(SchemaType):
            raise ValueError(f"type: found {str(given['type'])[:100]!r}")
        return RegisteredSchema(
            id=number(given["id"]),
            type=given["type"],
            text=_text(given["text"]),
            references=tuple(map(reference, given["references"])),
            version=number(given["version"]),
        )

    versions = sorted(map(version, document["versions"]), key=lambda each: each.version or 0)
    subject = checked_subject(_text(document["subject"]))
    return subject, None if level is None else checked_level(_text(level)), tuple(versions)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"found {str(value)[:100]!r}, wanted text")
    return value
