"""`ottla asyncapi`: what a service receives and sends, as an AsyncAPI 3 document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from ottla.cli.services.run import load_app
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.output import Output, prints, say

_BREAKING: Final = 2
_COLUMNS: Final = ("breaking", "operation", "message", "change")


class _TargetFirst(CommandGroup):
    """`ottla asyncapi billing:app` is short for `ottla asyncapi show billing:app`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_target = bool(args) and args[0] not in self.commands and any(":" in each for each in args)
        return super().parse_args(ctx, ["show", *args] if is_target else args)


@click.group(cls=_TargetFirst)
def asyncapi() -> None:
    """Write the AsyncAPI 3 document of a service, from the declarations of its App.

    \b
    Examples:
      ottla asyncapi billing:app
      ottla asyncapi billing:app -o asyncapi.json
      ottla asyncapi diff asyncapi.json billing:app
    """


@asyncapi.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("-o", "--output", type=FILE, help="Write to this file.")
@click.option(
    "--app-version", default="0.0.0", show_default=True, metavar="VERSION", help="Version of the service, for `info`."
)
@click.option("--html", "as_page", is_flag=True, help="Write one static page of HTML instead of JSON.")
def show(target: str, output: Path | None, app_version: str, as_page: bool) -> None:
    """Print the document of the App named APP in MODULE, as JSON. It reaches no broker and has no secrets.

    \b
    Examples:
      ottla asyncapi show billing:app
      ottla asyncapi show billing:app --app-version 1.4.0 -o asyncapi.json
      ottla asyncapi show billing:app --html -o asyncapi.html
    """
    from ottla.asyncapi import document_of, page_of

    document = document_of(load_app(target), version=app_version)
    text = page_of(document) if as_page else json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    _write(text, output)


@asyncapi.command()
@click.argument("old")
@click.argument("new")
@prints
def diff(old: str, new: str, out: Output) -> None:
    """List the differences of the documents OLD and NEW: files, or MODULE:APP. Exit code 2 for one that breaks.

    What a service receives breaks if data that was valid is refused now: a new required field, a narrower type. What it
    sends breaks if readers of the old document cannot read it. A topic or message that is removed breaks both.

    \b
    Examples:
      ottla asyncapi diff asyncapi.json billing:app
      ottla asyncapi diff asyncapi.json asyncapi.json --format json
    """
    from ottla.asyncapi import differences

    found = differences(_document(old), _document(new))
    items = (
        {"breaking": each.is_breaking, "operation": each.operation, "message": each.message, "change": each.change}
        for each in found
    )
    out.items("asyncapi.diff/1", _COLUMNS, items, empty="no difference")
    if any(each.is_breaking for each in found):
        raise click.exceptions.Exit(_BREAKING)


def _document(given: str) -> Any:
    """Return the document in a file, or that of an app."""
    from ottla.admin.facts.facts_file import read_bounded
    from ottla.asyncapi import document_of
    from ottla.errors import InputError
    from ottla.foreign_json import read_json

    if ":" in given and not Path(given).exists():
        return document_of(load_app(given))
    try:
        return read_json(read_bounded(given))
    except ValueError as error:
        raise InputError(f"{given}: found no JSON: {error}") from None


def _write(text: str, output: Path | None) -> None:
    """Print a text, or put it in place of a file, which is never there in part."""
    if output is None:
        click.echo(text, nl=False)
        return
    from ottla.admin.facts.facts_file import write_whole

    write_whole(output, text.encode())
    say(f"written to {output}")
