"""`ottla schemas list`, `show` and `versions`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.registry_access import checked_subject
from ottla.browse.schema_items import pretty, schema_item, subject_items, subject_names, version_items
from ottla.cli.shared.complete import complete_subjects
from ottla.cli.shared.output import Column, Format, Output, is_terminal, prints
from ottla.cli.shared.registry_options import reaches_a_registry
from ottla.cli.shared.visible import visible
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.browse.registry_access import RegistryAccess

_SUBJECTS = ("subject", Column("version", title="latest"), Column("id", text=str), "type", "references")
_VERSIONS = (
    "version",
    Column("id", text=str),
    "type",
    Column("references", text=lambda found: ", ".join(f"{each['subject']}:{each['version']}" for each in found)),
    "deleted",
)


@click.command("list")
@click.argument("pattern", required=False, shell_complete=complete_subjects)
@click.option("--deleted", is_flag=True, help="Also the subjects that were deleted, whose ids still answer.")
@reaches_a_registry
@prints
def list_subjects(pattern: str | None, deleted: bool, access: RegistryAccess, out: Output) -> None:
    """List subjects with their latest versions: all, or those that match PATTERN, as 'orders*'.

    \b
    Examples:
      ottla schemas list
      ottla schemas list 'orders*' --format json
      ottla schemas list --deleted
    """
    registry = access.open()
    items = subject_items(registry, subject_names(registry, pattern, deleted=deleted))
    columns = (*_SUBJECTS, "deleted") if deleted else _SUBJECTS
    out.items("schemas.list/1", columns, items, empty="no subjects")


@click.command()
@click.argument("subject", required=False, shell_complete=complete_subjects)
@click.option("--version", type=click.IntRange(1), metavar="N", help="This version.  [default: the latest]")
@click.option("--id", "schema_id", type=click.IntRange(0), metavar="N", help="The schema of this id, without SUBJECT.")
@click.option("--deleted", is_flag=True, help="With --version: also one that was deleted.")
@click.option("--raw", is_flag=True, help="Print the schema alone, as it was registered.")
@reaches_a_registry
@prints
def show(
    subject: str | None,
    version: int | None,
    schema_id: int | None,
    deleted: bool,
    raw: bool,
    access: RegistryAccess,
    out: Output,
) -> None:
    """Show a schema, what it refers to, and what refers to it: of SUBJECT, or of an id.

    \b
    Examples:
      ottla schemas show orders-value
      ottla schemas show orders-value --version 1 --raw
      ottla schemas show --id 1 --format json
    """
    if (subject is None) == (schema_id is None) or (schema_id is not None and version is not None):
        raise InputError("found no SUBJECT and no --id, or more than one of SUBJECT, --version and --id: wanted one")
    registry = access.open()
    if schema_id is not None:
        found = registry.schema(schema_id)
    else:
        found = registry.version(checked_subject(subject or ""), version or "latest", deleted=deleted)
    if raw:
        text = found.text
        if is_terminal(sys.stdout):  # a file gets it as it is
            text = "\n".join(map(visible, text.splitlines()))
        click.echo(text, nl=not text.endswith("\n"), color=True)  # Click takes out what looks like colours
        return
    item = schema_item(registry, found)
    if out.format is Format.JSON:
        out.one("schemas.show/1", item)
        return
    text = item.pop("schema_text")
    if out.format is Format.PLAIN:
        out.one("schemas.show/1", {**item, "schema_text": text})
        return
    out.one("schemas.show/1", {name: _listed(value) for name, value in item.items() if value not in (None, [])})
    click.echo()
    for line in pretty(found):
        click.echo(visible(line))


@click.command()
@click.argument("subject", shell_complete=complete_subjects)
@click.option("--deleted", is_flag=True, help="Also the versions that were deleted.")
@reaches_a_registry
@prints
def versions(subject: str, deleted: bool, access: RegistryAccess, out: Output) -> None:
    """List the versions of SUBJECT, oldest first.

    \b
    Examples:
      ottla schemas versions orders-value
      ottla schemas versions orders-value --deleted --format json
    """
    items = version_items(access.open(), checked_subject(subject), deleted=deleted)
    out.items("schemas.versions/1", _VERSIONS if deleted else _VERSIONS[:-1], items, subject=subject)


def _listed(value: Any) -> Any:
    """Return references as a person reads them."""
    if not isinstance(value, list):
        return value
    return [
        (f"{each['name']} = " if "name" in each else "") + f"{each['subject']} version {each['version']}"
        for each in value
    ]
