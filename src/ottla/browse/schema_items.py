"""Subjects, versions and schemas of a registry, as items that commands print and pages show."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ottla.foreign_json import read_json

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema, SchemaReference
    from ottla.serdes.registry_admin import RegistryAdmin


def subject_names(registry: RegistryAdmin, pattern: str | None = None, *, deleted: bool = False) -> list[str]:
    """Return the subjects that match a pattern as `orders*`, or all; with `deleted` also the soft-deleted ones."""
    names = registry.subjects(deleted=deleted)
    return [name for name in names if pattern is None or fnmatchcase(name, pattern)]


def subject_items(registry: RegistryAdmin, subjects: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield an item of `schemas.list/1` for each subject: its latest version. One that was deleted meanwhile is left
    out, and one whose versions are all soft-deleted is marked."""
    from ottla.serdes.registry import UnknownSchema

    for subject in subjects:
        is_deleted = False
        try:
            latest = registry.version(subject)
        except UnknownSchema:
            try:
                latest = registry.version(subject, registry.all_versions(subject, deleted=True)[-1], deleted=True)
            except (UnknownSchema, IndexError):
                continue
            is_deleted = True
        yield {
            "subject": subject,
            "version": latest.version,
            "id": latest.id,
            "type": latest.type,
            "references": len(latest.references),
            "deleted": is_deleted,
        }


def schema_item(registry: RegistryAdmin, schema: RegisteredSchema) -> dict[str, Any]:
    """Return the item of `schemas.show/1`: a schema with the versions that have its id and its references; of a version
    also the compatibility level, and what refers to it."""
    subject, version = schema.subject, schema.version
    from ottla.serdes.registry import UnknownSchema

    is_version = subject is not None and version is not None
    own = registry.level(subject) if is_version else None
    by: list[int] = []
    if subject is not None and version is not None:
        with contextlib.suppress(UnknownSchema):  # of a deleted version, a registry may not say it
            by = registry.referenced_by(subject, version)
    return {
        "subject": subject,
        "version": version,
        "id": schema.id,
        "type": schema.type,
        "compatibility": own or registry.level() if is_version else None,
        "versions_of_id": [{"subject": user, "version": at} for user, at in registry.uses(schema.id)],
        "references": reference_items(schema.references),
        "referenced_by": [
            {"subject": user, "version": at} for schema_id in by for user, at in registry.uses(schema_id)
        ],
        "schema_text": schema.text,
    }


def version_items(registry: RegistryAdmin, subject: str, *, deleted: bool = False) -> list[dict[str, Any]]:
    """Return an item of `schemas.versions/1` for each version, oldest first. Raises `UnknownSchema` for a subject that
    has none."""
    live = registry.versions(subject)
    numbers = registry.all_versions(subject, deleted=True) if deleted else registry.all_versions(subject)
    items = []
    for number in numbers:
        schema = registry.version(subject, number, deleted=deleted)
        items.append(
            {
                "version": number,
                "id": schema.id,
                "type": schema.type,
                "references": reference_items(schema.references),
                "deleted": number not in live,
            }
        )
    return items


def level_item(registry: RegistryAdmin, subject: str | None) -> dict[str, Any]:
    """Return the item of `schemas.compatibility/1`: the level that holds for a subject, or for all without one."""
    own = registry.level(subject)
    level = own or registry.level()
    return {"subject": subject, "level": level, "own": own is not None}


def reference_items(references: Iterable[SchemaReference]) -> list[dict[str, Any]]:
    return [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]


def pretty(schema: RegisteredSchema) -> list[str]:
    """Return the lines of a schema: JSON is indented, the source of Protobuf is as it is."""
    if schema.type != "PROTOBUF":
        try:
            return json.dumps(read_json(schema.text), indent=2, ensure_ascii=False).splitlines()
        except ValueError:
            pass  # a registry took what is no JSON: it is shown as it is
    return schema.text.splitlines()
