"""Schemas of `ottla apply`: compared with the registry, and registered where they are not there yet.

A schema is registered as the next version of its subject, after those that it refers to, or refused where it is not
compatible. None is deleted: what is no longer declared stays, and `ottla schemas delete` deletes it. Levels are
compared three ways, as settings are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.admin.declared.apply_plan import ApplyPlan, Kind, PlannedChange
from ottla.admin.declared.declared_cluster import Applied, DeclaredSchema
from ottla.browse import schema_changes
from ottla.browse.schema_files import parse_references, parse_schema
from ottla.errors import InputError
from ottla.serdes.registry import MOST_IMPORTS_DEEP, UnknownSchema

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema
    from ottla.serdes.registry_admin import RegistryAdmin


def planned_schemas(
    schemas: Mapping[str, DeclaredSchema], applied: Applied, registry: RegistryAdmin
) -> tuple[PlannedChange, ...]:
    """Return what would be set and registered. InputError for a schema that is not compatible with those before it, at
    the level that is declared."""
    changes: list[PlannedChange] = []
    wanted = {subject: each.level for subject, each in schemas.items() if each.level is not None}
    for subject in sorted({*wanted, *applied.levels}):
        old, new = registry.level(subject), wanted.get(subject)
        if old != new:
            changes.append(PlannedChange(kind=Kind.LEVEL, subject=subject, old=old, new=new))
    levels = _new_levels(changes, registry)
    planned: dict[tuple[str, int], RegisteredSchema] = {}
    for subject in _in_order(schemas):
        declared = schemas[subject]
        schema = _schema(subject, declared)
        level = levels.get(subject)
        plan = _registration(registry, subject, schema, level, planned)
        if plan.problems:
            at = "" if level is None else f" at the declared level {level}"
            raise InputError(
                f"schema {subject}: not compatible with the versions before it{at}: {'; '.join(plan.problems)}"
            )
        if plan.existing is None:
            latest = max(registry.versions(subject), default=None)
            planned[subject, _next_number(registry, subject)] = schema
            unknown = "; ".join(plan.not_compared)
            changes.append(
                PlannedChange(
                    kind=Kind.SCHEMA,
                    subject=subject,
                    name=declared.type,
                    old=None if latest is None else f"version {latest}",
                    new="the next version" if latest is not None else "version 1",
                    note=f"the registry compares it when it is registered: {unknown}" if unknown else "",
                    schema=declared,
                )
            )
    return tuple(changes)


def check_schemas(plan: ApplyPlan, registry: RegistryAdmin) -> None:
    """Raise `InputError` where the registry is no longer as the plan was made from, and `RegistryUnavailable` where it
    does not answer. Changes nothing."""
    levels = _new_levels(plan.of_registry, registry)
    planned: dict[tuple[str, int], RegisteredSchema] = {}
    for change in plan.of_registry:
        left = _left_to_make(change, registry, level=levels.get(change.subject), planned=planned)
        if isinstance(left, schema_changes.Registration):
            planned[change.subject, _next_number(registry, change.subject)] = left.schema


def apply_schemas(plan: ApplyPlan, registry: RegistryAdmin) -> None:
    """Make the changes of a plan in the registry, each to what it was planned from."""
    for change in plan.of_registry:
        left = _left_to_make(change, registry)
        if isinstance(left, schema_changes.LevelChange):
            schema_changes.set_level(registry, left)
        elif left is not None:
            schema_changes.register(registry, left)


def _left_to_make(
    change: PlannedChange,
    registry: RegistryAdmin,
    *,
    level: str | None = None,
    planned: Mapping[tuple[str, int], RegisteredSchema] | None = None,
) -> schema_changes.LevelChange | schema_changes.Registration | None:
    """Return the change as the registry is asked for it; None if it is made. `level` and `planned` are what the changes
    before it make."""
    if change.kind is Kind.LEVEL or change.schema is None:
        wanted = None if change.new is None else schema_changes.checked_level(change.new, where=change.subject)
        new_level = schema_changes.plan_level(registry, change.subject, wanted)
        if new_level.is_change and new_level.old != change.old:
            raise InputError(f"{change}: is {new_level.old or 'none'} now; plan again")
        return new_level if new_level.is_change else None
    schema = _schema(change.subject, change.schema)
    again = _registration(registry, change.subject, schema, level, planned or {})
    if again.existing is not None:
        return None
    latest = max(registry.versions(change.subject), default=None)
    if change.old != (None if latest is None else f"version {latest}") or again.problems:
        now = "; ".join(again.problems) or f"version {latest} is the latest now"
        raise InputError(f"schema {change.subject}: {now}; plan again")
    return again


def _registration(
    registry: RegistryAdmin,
    subject: str,
    schema: RegisteredSchema,
    level: str | None,
    planned: Mapping[tuple[str, int], RegisteredSchema],
) -> schema_changes.Registration:
    try:
        return schema_changes.plan_registration(registry, subject, schema, level=level, planned=planned)
    except UnknownSchema as error:
        raise InputError(f"schema {subject}: found a reference that leads nowhere: {error}") from None


def _new_levels(changes: Sequence[PlannedChange], registry: RegistryAdmin) -> dict[str, str]:
    """Return subject → the level that holds for it after changes of levels, where it is not the one that holds now."""
    moved = [each for each in changes if each.kind is Kind.LEVEL]
    if not moved:
        return {}
    of_all = registry.level() or ""
    found = {each.subject: each.new or of_all for each in moved}
    return {subject: new for subject, new in found.items() if new != (registry.level(subject) or of_all)}


def _in_order(schemas: Mapping[str, DeclaredSchema]) -> list[str]:
    """Return the subjects whose schemas are declared, each after those that it refers to."""
    found: dict[str, None] = {}

    def add(subject: str, above: tuple[str, ...]) -> None:
        if subject in above:
            raise InputError(f"schema {subject}: its references form a cycle: {' → '.join((*above, subject))}")
        if len(above) >= MOST_IMPORTS_DEEP:
            raise InputError(f"schema {subject}: found more than {MOST_IMPORTS_DEEP} references within each other")
        declared = schemas.get(subject)
        if declared is None or declared.text is None or subject in found:
            return
        for reference in parse_references(declared.references, where=f"schema {subject}"):
            add(reference.subject, (*above, subject))
        found[subject] = None

    for subject in sorted(schemas):
        add(subject, ())
    return list(found)


def _next_number(registry: RegistryAdmin, subject: str) -> int:
    """Return the number of the subject's next version. Those of deleted ones are not used again."""
    try:
        return max(registry.all_versions(subject, deleted=True), default=0) + 1
    except UnknownSchema:
        return 1


def _schema(subject: str, declared: DeclaredSchema) -> RegisteredSchema:
    place = f"schema {subject}"
    references = parse_references(declared.references, where=place)
    return parse_schema(declared.text or "", declared.type, references=references, source=place)
