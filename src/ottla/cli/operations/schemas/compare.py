"""`ottla schemas diff` and `check`: nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.browse.registry_access import checked_subject
from ottla.browse.schema_changes import plan_registration
from ottla.browse.schema_differences import schema_differences
from ottla.browse.schema_files import TYPES, parse_references, read_schema
from ottla.cli.services.run import load_app
from ottla.cli.shared.complete import complete_subjects
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import takes
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Column, Format, Output, prints, say, warn
from ottla.cli.shared.registry_options import reaches_a_registry
from ottla.cli.shared.visible import visible
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.browse.registry_access import RegistryAccess
    from ottla.serdes.registered_schema import SchemaType


_DIFF = ("direction", "problem")
_CHECK = ("subject", "type", "result", Column("problems", text=lambda found: "; ".join(found)))
_CHECK_APP = ("place", "action", "topic", "part", *_CHECK)
_WELL = ("registered", "new subject", "compatible", "not compared")


takes_a_schema: Final = takes(
    click.option(
        "--type",
        "kind",
        type=click.Choice(TYPES, case_sensitive=False),
        help="The format.  [default: by the file's name: .avsc, .json, .proto]",
    ),
    click.option(
        "--reference",
        "references",
        multiple=True,
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one uses by NAME; may be repeated.",
    ),
)
"""Add `--type` and `--reference`, as `kind` and `references`."""


@click.command()
@click.argument("subject", shell_complete=complete_subjects)
@click.option("--from", "old", type=click.IntRange(1), metavar="N", help="The old version.  [default: one before]")
@click.option("--to", "new", type=click.IntRange(1), metavar="N", help="The new version.  [default: the latest]")
@click.option("--file", type=FILE, help="A schema in a file, in place of the new version.")
@takes_a_schema
@reaches_a_registry
@prints
def diff(
    subject: str,
    old: int | None,
    new: int | None,
    file: Path | None,
    kind: SchemaType | None,
    references: tuple[str, ...],
    access: RegistryAccess,
    out: Output,
) -> None:
    """Compare two versions of SUBJECT: their text, and whether each reads the data of the other.

    BACKWARD is why the new schema cannot read data of the old one, FORWARD why the old one cannot read data of the new
    one. Both follow the rules of the format; `check` asks the registry, whose level and rules decide.

    \b
    Examples:
      ottla schemas diff orders-value
      ottla schemas diff orders-value --from 1 --to 2 --format json
      ottla schemas diff orders-value --file order.avsc
    """
    if file is not None and new is not None:
        raise InputError("found --file and --to, wanted one of them")
    if file is None and (kind is not None or references):
        raise InputError("found --type or --reference without --file")
    registry = access.open()
    numbers = registry.all_versions(checked_subject(subject))
    if file is not None:
        one, other = old or numbers[-1], file.name
        newer = read_schema(file, type=kind, references=parse_references(references))
    else:
        later = new or numbers[-1]
        before = [each for each in numbers if each < later]
        if old is None and not before:
            raise InputError(f"{subject}: version {later} is the first one: --from or --file names another one")
        one, other = old or before[-1], f"version {later}"
        newer = registry.version(subject, later)
    found = schema_differences(registry, registry.version(subject, one), newer, names=(f"version {one}", other))
    if out.format is Format.TABLE:
        for line in found.text:
            click.echo(click.style(visible(line), fg=_COLOURS.get(line[:1])))
    items = [
        {"direction": direction, "problem": problem}
        for direction, problems in (("backward", found.backward), ("forward", found.forward))
        for problem in problems or ()
    ]
    if found.why_not is not None:
        warn(f"not compared: {visible(found.why_not)}")
    empty = "no difference" if not found.text else "each reads the data of the other"
    out.items(
        "schemas.diff/1",
        _DIFF,
        items,
        empty=empty if found.why_not is None else "only the text was compared",
        subject=subject,
        old=f"version {one}",
        new=other,
        text=list(found.text),
        not_compared=found.why_not,
    )


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("subject", required=False, shell_complete=complete_subjects)
@click.argument("file", required=False, type=FILE)
@click.option("--app", "target", metavar="MODULE:APP", help="Check all schemas of this service instead.")
@takes_a_schema
@reaches_a_registry
@prints
def check(
    subject: str | None,
    file: Path | None,
    target: str | None,
    kind: SchemaType | None,
    references: tuple[str, ...],
    access: RegistryAccess,
    out: Output,
) -> None:
    """Check whether the schema in FILE can be the next version of SUBJECT. Exit code 1 if it cannot.

    With --app, check what a service sends as the registry would, and that it can read every version of what it
    receives. Each serde asks its own registry, or all ask that of --registry.

    \b
    Examples:
      ottla schemas check orders-value order.avsc
      ottla schemas check --app billing:app --format json
    """
    if (subject is None or file is None) == (target is None) or (target is not None and subject is not None):
        raise InputError("wanted SUBJECT and FILE, or --app MODULE:APP")
    if target is not None:
        if kind is not None or references:
            raise InputError("found --type or --reference with --app, wanted them with a FILE only")
        items = _of_app(target, access)
    else:
        assert file is not None
        schema = read_schema(file, type=kind, references=parse_references(references))
        items = [plan_registration(access.open(), checked_subject(subject or ""), schema).item]
    columns = _CHECK if target is None else _CHECK_APP
    out.items("schemas.check/1", columns, items, empty="the service has no serde with a registry")
    if any(item["result"] == "not compared" for item in items):
        say("not compared: the registry applies its rules when the schema is registered")
    if not all(item["result"] in _WELL for item in items):
        fail()


def _of_app(target: str, access: RegistryAccess) -> list[dict[str, Any]]:
    from ottla.browse.app_schemas import app_schemas, check_item

    registry = None if access.is_default else access.open()
    return [check_item(each, registry) for each in app_schemas(load_app(target))]
