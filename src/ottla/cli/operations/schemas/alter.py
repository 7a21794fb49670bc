"""`ottla schemas register`, `delete` and `restore`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.browse import schema_changes, schema_restoring
from ottla.browse.registry_access import checked_subject
from ottla.browse.reset_items import undo_path
from ottla.browse.schema_files import parse_references, read_schema
from ottla.cli.operations.schemas.compare import takes_a_schema
from ottla.cli.shared.complete import complete_subjects
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Column, Output, prints, say, warn
from ottla.cli.shared.registry_options import reaches_a_registry
from ottla.cli.shared.visible import visible
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.browse.registry_access import RegistryAccess
    from ottla.serdes.registered_schema import SchemaType

_REGISTER = ("subject", "type", "result", "version", Column("problems", text=lambda found: "; ".join(found)))
_DELETE = ("subject", "version", Column("id", text=str), "type")
_RESTORE = ("subject", "old_version", Column("version", title="version now"), Column("id", text=str), "type", "result")


@click.command()
@click.argument("subject", shell_complete=complete_subjects)
@click.argument("file", type=FILE)
@takes_a_schema
@reaches_a_registry
@prints
@changes
def register(
    subject: str,
    file: Path,
    kind: SchemaType | None,
    references: tuple[str, ...],
    access: RegistryAccess,
    out: Output,
    consent: Consent,
) -> None:
    """Register the schema in FILE as the next version of SUBJECT. One that is incompatible is refused.

    \b
    Examples:
      ottla schemas register orders-value order.avsc --dry-run
      ottla schemas register orders-value order.avsc --yes
      ottla schemas register items-value item.proto --yes
    """
    registry = access.open()
    schema = read_schema(file, type=kind, references=parse_references(references))
    plan = schema_changes.plan_registration(registry, checked_subject(subject), schema)
    out.items("schemas.register/1", _REGISTER, [plan.item])
    if plan.existing is not None:
        say(f"{subject}: it is version {plan.existing} already, nothing to register")
        return
    if plan.problems:
        raise InputError(f"{subject}: {file} is not compatible with the versions before it: {'; '.join(plan.problems)}")
    if not consent.agree(f"Register {file} for {subject}?"):
        return
    with changing():
        version, schema_id = schema_changes.register(registry, plan)
    say(f"{subject}: registered as version {version}, id {schema_id}")


@click.command()
@click.argument("subject", shell_complete=complete_subjects)
@click.option(
    "--version", "versions", type=click.IntRange(1), multiple=True, metavar="N", help="Only this one; may be repeated."
)
@click.option(
    "--undo",
    "undo_file",
    type=FILE,
    help="The file for what is deleted, for `ottla schemas restore`.  [default: ./SUBJECT-schemas-TIME.json]",
)
@reaches_a_registry
@prints
@changes
def delete(
    subject: str,
    versions: tuple[int, ...],
    undo_file: Path | None,
    access: RegistryAccess,
    out: Output,
    consent: Consent,
) -> None:
    """Delete SUBJECT, or some of its versions. Their ids still answer: records with them stay readable.

    A version that other schemas refer to is refused.

    \b
    Examples:
      ottla schemas delete orders-value --dry-run
      ottla schemas delete orders-value --version 2 --yes
      ottla schemas delete orders-value --undo before.json --yes
    """
    registry = access.open()
    plan = schema_changes.plan_deletion(registry, checked_subject(subject), versions)
    out.items("schemas.delete/1", _DELETE, plan.items, compatibility=plan.level)
    numbers = ", ".join(str(each.version) for each in plan.versions)
    what = "all its versions" if plan.is_whole else f"version {numbers}"
    if not consent.agree(f"Delete {subject}, {what}?", name=subject):
        return
    path = undo_path(undo_file, subject, time.time_ns() // 1_000_000, what="schemas")
    with changing():
        try:
            schema_changes.delete(registry, plan, path)
        finally:
            if path.exists():
                say(f"restore what was deleted with: ottla schemas restore {visible(str(path))}")
    say(f"{subject}: deleted, {what}")


@click.command()
@click.argument("file", type=FILE)
@reaches_a_registry
@prints
@changes
def restore(file: Path, access: RegistryAccess, out: Output, consent: Consent) -> None:
    """Restore the versions in FILE, which delete wrote, and the compatibility level of their subject.

    They keep their ids and are numbered as new versions: the last one becomes the latest.

    \b
    Examples:
      ottla schemas restore before.json --dry-run
      ottla schemas restore before.json --yes
    """
    registry = access.open()
    plan = schema_restoring.plan_restoration(registry, file)
    out.items("schemas.restore/1", _RESTORE, plan.items, compatibility=plan.level)
    if not plan.is_change:
        say(f"{plan.subject}: nothing to restore")
        return
    if plan.level != plan.level_now:
        now = visible(plan.level_now or "that of the registry")
        say(f"compatibility of {plan.subject}: {plan.level or 'that of the registry'}, now {now}")
    if not consent.agree(f"Restore {len(plan.versions)} versions of {plan.subject}?"):
        return
    with changing():
        remarks = schema_restoring.restore(registry, plan)
    for remark in remarks:
        warn(visible(remark))
    say(f"{plan.subject}: restored")
