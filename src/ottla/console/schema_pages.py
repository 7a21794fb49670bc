"""Schemas of the registry: subjects, versions and differences. A change is planned and shown before it is made, by the
functions of `ottla schemas`.

Each request has a client of its own: nothing that another person registered or deleted is remembered from before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.browse import schema_changes, schema_restoring
from ottla.browse.human_amounts import moment
from ottla.browse.registry_access import checked_subject, opened_registry
from ottla.browse.reset_items import undo_path
from ottla.browse.schema_differences import schema_differences
from ottla.browse.schema_files import TYPES, parse_references, parse_schema
from ottla.browse.schema_items import (
    level_item,
    pretty,
    schema_item,
    subject_items,
    subject_names,
    version_items,
)
from ottla.console.cluster_pages import matcher
from ottla.console.query import Query
from ottla.console.state import ConsoleState
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import SchemaType
    from ottla.serdes.registry_admin import RegistryAdmin

PAGE: Final = 50
_MOST_PAGE: Final = 200
_MOST_VERSION: Final = 2**31 - 1
_MOST_CONTENT: Final = 1_900_000
"""Characters of a schema or an undo file: a request holds two MiB."""
_MOST_AUDITED: Final = 20_000

Change = (
    schema_changes.Registration | schema_changes.Deletion | schema_restoring.Restoration | schema_changes.LevelChange
)


@dataclass(frozen=True, slots=True)
class ShownSchemaChange:
    """A change of the registry that was shown, and may be made."""

    change: Change


def _with_registry(
    function: Callable[[ConsoleState, RegistryAdmin, Query], dict[str, Any]],
) -> Callable[[ConsoleState, Query], dict[str, Any]]:
    """Give a page a client of the registry. What the registry does not have is a wrong parameter."""

    @wraps(function)
    def page(console: ConsoleState, query: Query) -> dict[str, Any]:
        from ottla.serdes.registry import UnknownSchema

        if console.choices.registry is None:
            raise InputError("this console has no schema registry: start it with --registry URL")
        try:
            return function(console, opened_registry(console.choices.registry), query)
        except UnknownSchema as error:
            raise InputError(str(error)) from None

    return page


@_with_registry
def schemas(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return a page of subjects with their latest versions, which are asked for on this page only."""
    wanted = matcher(query.text("match", most=300))
    is_reversed = query.flag("reverse")
    deleted = query.flag("deleted")
    page, size = query.paging(size=PAGE, most=_MOST_PAGE)
    query.done()
    names = [name for name in subject_names(registry, deleted=deleted) if wanted(name)]
    if is_reversed:
        names.reverse()
    return {
        "schema": "ottla.console.schemas/1",
        "at": moment(console.now_ms()),
        "registry": registry.url,
        "level": registry.level(),
        "total": len(names),
        "page": page,
        "size": size,
        "items": list(subject_items(registry, names[page * size : (page + 1) * size])),
    }


@_with_registry
def schema(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return one version of a subject, and the list of its versions. Of a deleted subject, the last one that it had."""
    subject = checked_subject(query.needed("subject"))
    version = query.number("version", None, least=1, most=_MOST_VERSION)
    query.done()
    live = registry.versions(subject)
    if version is None and not live:
        version = registry.all_versions(subject, deleted=True)[-1]
    found = registry.version(subject, version or "latest", deleted=version is not None)
    return {
        "at": moment(console.now_ms()),
        **schema_item(registry, found),
        "schema": "ottla.console.schema/1",
        "level": level_item(registry, subject),
        "versions": version_items(registry, subject, deleted=True),
        "lines": pretty(found),
    }


@_with_registry
def difference(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return the differences of two versions of a subject."""
    subject = checked_subject(query.needed("subject"))
    numbers = [query.number(name, None, least=1, most=_MOST_VERSION) for name in ("from", "to")]
    query.done()
    old, new = (registry.version(subject, _needed(each), deleted=True) for each in numbers)
    found = schema_differences(registry, old, new, names=(f"version {numbers[0]}", f"version {numbers[1]}"))
    return {
        "schema": "ottla.console.schema-difference/1",
        "text": list(found.text),
        "backward": None if found.backward is None else list(found.backward),
        "forward": None if found.forward is None else list(found.forward),
        "not_compared": found.why_not,
    }


@_with_registry
def plan_registration(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return what registering a schema would do. Changes nothing; `apply` takes its number."""
    subject = checked_subject(query.needed("subject"))
    text = query.text("text", most=_MOST_CONTENT) or ""
    kind = cast("SchemaType", query.one_of("type", TYPES, "AVRO"))
    references = parse_references(query.texts("references"), where="references")
    query.done()
    wanted = parse_schema(text, kind, references=references, source="text")
    plan = schema_changes.plan_registration(registry, subject, wanted)
    is_change = plan.existing is None and not plan.problems
    return _shown(console, plan, is_change=is_change, schema="ottla.schemas.register/1", items=[plan.item])


@_with_registry
def plan_deletion(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return what deleting a subject, or one version, would do. Changes nothing."""
    subject = checked_subject(query.needed("subject"))
    version = query.number("version", None, least=1, most=_MOST_VERSION)
    query.done()
    plan = schema_changes.plan_deletion(registry, subject, () if version is None else (version,))
    return _shown(console, plan, is_change=True, schema="ottla.schemas.delete/1", items=plan.items)


@_with_registry
def plan_restoration(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return what restoring the content of an undo file would do. Changes nothing."""
    content = query.text("content", most=_MOST_CONTENT)
    query.done()
    plan = schema_restoring.planned_restoration(registry, (content or "").encode("utf-8", "replace"), "the undo file")
    return _shown(console, plan, is_change=plan.is_change, schema="ottla.schemas.restore/1", items=plan.items)


@_with_registry
def plan_level(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Return what setting a compatibility level would do; without a level, what removing it would. Changes nothing."""
    given = query.text("subject", most=2_000)
    level = query.text("level", most=100)
    query.done()
    subject = None if given is None else checked_subject(given)
    if subject is None and level is None:
        raise InputError("level: found nothing, wanted the level of the registry")
    wanted = None if level is None else schema_changes.checked_level(level, where="level")
    plan = schema_changes.plan_level(registry, subject, wanted)
    return _shown(
        console, plan, is_change=plan.is_change, schema="ottla.schemas.set-compatibility/1", items=[plan.item]
    )


@_with_registry
def apply(console: ConsoleState, registry: RegistryAdmin, query: Query) -> dict[str, Any]:
    """Make a change that was shown, after its line in the audit file."""
    number = query.number("plan", None, least=1, most=2**53)
    console.agree(query)
    change = console.plans.take(number, ShownSchemaChange).change
    return {"schema": "ottla.console.schema-change/1", "subject": change.subject, **_made(console, registry, change)}


def _made(console: ConsoleState, registry: RegistryAdmin, change: Change) -> dict[str, Any]:
    subject = change.subject or registry.url
    if isinstance(change, schema_changes.Registration):
        _refuse_if_changed(schema_changes.plan_registration(registry, change.subject, change.schema), change)
        text = change.schema.text[:_MOST_AUDITED]
        console.audit("schemas.register", subject, after={"type": change.schema.type, "text": text})
        version, schema_id = schema_changes.register(registry, change)
        return {"said": f"Registered as version {version}, id {schema_id}.", "undo": None, "command": None}
    if isinstance(change, schema_changes.LevelChange):
        _refuse_if_changed(schema_changes.plan_level(registry, change.subject, change.level), change)
        console.audit("schemas.set-compatibility", subject, before=change.old, after=change.level)
        schema_changes.set_level(registry, change)
        return {"said": f"The compatibility is {change.level or registry.level()}.", "undo": None, "command": None}
    if isinstance(change, schema_restoring.Restoration):
        console.audit("schemas.restore", subject, after={str(each.version): each.id for each in change.versions})
        remarks = schema_restoring.restore(registry, change)
        return {"said": " ".join(["Restored.", *remarks]), "undo": None, "command": None}
    path = undo_path(None, subject, console.now_ms(), folder=console.choices.folder, what="schemas")
    console.audit("schemas.delete", subject, before={str(each.version): each.id for each in change.versions})
    schema_changes.delete(registry, change, path)
    return {
        "said": f"Deleted. What there was is in {path}.",
        "undo": path.read_text(encoding="utf-8"),
        "command": f"ottla schemas restore {path.name}",
    }


def _refuse_if_changed(now: Change, shown: Change) -> None:
    """Raise `InputError` where another client has changed the subject since the change was shown."""
    if now != shown:
        name = shown.subject or "the registry"
        raise InputError(f"nothing was changed: {name} is not as it was shown; ask for the change again")


def _shown(
    console: ConsoleState, change: Change, *, is_change: bool, schema: str, items: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "schema": schema,
        "subject": change.subject,
        "plan": console.plans.keep(ShownSchemaChange(change)) if is_change else None,
        "items": items,
    }


def _needed(number: int | None) -> int:
    if number is None:
        raise InputError("found one version, wanted from and to")
    return number
