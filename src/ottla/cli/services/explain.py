"""`ottla explain`: what an error class means and what to do about it, from the pages of the documentation."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.errors import page_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_IN_CHECKOUT = Path(__file__).parents[4] / "docs" / "errors"


def pages() -> dict[str, str]:
    """Return name of an error class: its page, as Markdown."""
    installed = files("ottla") / "error_pages"  # put there when the wheel is built
    folder: Traversable = installed if installed.is_dir() else _IN_CHECKOUT
    found = (each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".md"))
    return {_title(text): text for text in sorted(found)}


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in pages() if name.startswith(incomplete)]


@click.command()
@click.argument("error", required=False, shell_complete=_complete)
def explain(error: str | None) -> None:
    """Say what ERROR means, its usual causes, and what to do. Without ERROR, list all errors.

    \b
    Examples:
      ottla explain UnknownTopic
      ottla explain unknown-topic
    """
    known = pages()
    if error is None:
        click.echo("\n".join(known))
        return
    wanted = error.rpartition(".")[2]
    text = next((known[name] for name in known if wanted in (name, page_of(name))), None)
    if text is None:
        from difflib import get_close_matches

        near = get_close_matches(wanted, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else "; `ottla explain` lists the errors"
        raise click.UsageError(f"{wanted}: no error of Ottla has this name{meant}")
    click.echo(text.rstrip("\n"))
