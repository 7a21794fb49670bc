"""Schemas of `ottla apply`: compared with the registry, and registered where they are not there yet.

A schema is registered as the next version of its subject, or refused where it is not compatible. None is deleted: what
is no longer declared stays, and `ottla schemas delete` deletes it. Levels are compared three ways, as settings are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.admin.declared.apply_plan import ApplyPlan, Kind, PlannedChange
from ottla.admin.declared.declared_cluster import Applied, DeclaredSchema
from ottla.browse import schema_changes
from ottla.browse.schema_files import parse_references, parse_schema
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.serdes.registry import RegisteredSchema
    from ottla.serdes.registry_admin import RegistryAdmin


def planned_schemas(
    schemas: Mapping[str, DeclaredSchema], applied: Applied, registry: RegistryAdmin
) -> tuple[PlannedChange, ...]:
    """Return what would be set and registered. InputError for a schema that is not compatible with those before it."""
    changes: list[PlannedChange] = []
    wanted = {subject: each.level for subject, each in schemas.items() if each.level is not None}
    for subject in sorted({*wanted, *applied.levels}):
        old, new = registry.level(subject), wanted.get(subject)
        if old != new:
            changes.append(PlannedChange(kind=Kind.LEVEL, subject=subject, old=old, new=new))
    for subject, declared in sorted(schemas.items()):
        if declared.text is None:
            continue
        plan = schema_changes.plan_registration(registry, subject, _schema(subject, declared))
        if plan.problems:
            raise InputError(
                f"schema {subject}: not compatible with the versions before it: {'; '.join(plan.problems)}"
            )
        if plan.existing is None:
            latest = max(registry.versions(subject), default=None)
            changes.append(
                PlannedChange(
                    kind=Kind.SCHEMA,
                    subject=subject,
                    name=declared.type,
                    old=None if latest is None else f"version {latest}",
                    new="the next version" if latest is not None else "version 1",
                    schema=declared,
                )
            )
    return tuple(changes)


def check_schemas(plan: ApplyPlan, registry: RegistryAdmin) -> None:
    """Raise `InputError` where the registry is no longer as the plan was made from, and `RegistryUnavailable` where it
    does not answer. Changes nothing."""
    for change in plan.of_registry:
        _left_to_make(change, registry)


def apply_schemas(plan: ApplyPlan, registry: RegistryAdmin) -> None:
    """Make the changes of a plan in the registry, each to what it was planned from."""
    for change in plan.of_registry:
        left = _left_to_make(change, registry)
        if isinstance(left, schema_changes.LevelChange):
            schema_changes.set_level(registry, left)
        elif left is not None:
            schema_changes.register(registry, left)


def _left_to_make(
    change: PlannedChange, registry: RegistryAdmin
) -> schema_changes.LevelChange | schema_changes.Registration | None:
    """Return the change as the registry is asked for it; None if it is made."""
    if change.kind is Kind.LEVEL or change.schema is None:
        wanted = None if change.new is None else schema_changes.checked_level(change.new, where=change.subject)
        level = schema_changes.plan_level(registry, change.subject, wanted)
        if level.is_change and level.old != change.old:
            raise InputError(f"{change}: is {level.old or 'none'} now; plan again")
        return level if level.is_change else None
    again = schema_changes.plan_registration(registry, change.subject, _schema(change.subject, change.schema))
    if again.existing is not None:
        return None
    latest = max(registry.versions(change.subject), default=None)
    if change.old != (None if latest is None else f"version {latest}") or again.problems:
        now = "; ".join(again.problems) or f"version {latest} is the latest now"
        raise InputError(f"schema {change.subject}: {now}; plan again")
    return again


def _schema(subject: str, declared: DeclaredSchema) -> RegisteredSchema:
    place = f"schema {subject}"
    references = parse_references(declared.references, where=place)
    return parse_schema(declared.text or "", declared.type, references=references, source=place)
