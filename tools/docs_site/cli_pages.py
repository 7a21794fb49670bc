"""Reference of the command line: one page for each command of `ottla`, made from what `--help` is made from."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterator

import click

from ottla.cli import COMMANDS, main

_MANY = 20
"""An option that so many commands have, in the same words, is explained once, on the first page."""


def cli_pages() -> dict[str, str]:
    """Path in the documentation: text."""
    pages = {f"reference/cli/{name}.md": _page(name) for name in COMMANDS}
    rows = "".join(f"| [`ottla {name}`]({name}.md) | {COMMANDS[name][1]} |\n" for name in sorted(COMMANDS))
    pages["reference/cli/index.md"] = (
        "# Command line\n\n`ottla --help` lists the commands, `ottla COMMAND --help` shows the options of one.\n\n"
        f"| command | what it does |\n|---|---|\n{rows}\n## Shared options\n\n"
        "Most commands that reach a cluster have these options. The page of a command lists those that it has.\n\n"
        f"| option | what it does |\n|---|---|\n{_shared_rows()}\n## Exit codes\n\n"
        "| code | means |\n|---|---|\n| 0 | done |\n| 1 | done, but something failed or was found |\n"
        "| 2 | not begun: an argument, a setting or the cluster is wrong |\n| 130 | interrupted by Ctrl-C |\n\n"
        "Results go to stdout, everything else to stderr.\n"
    )
    return pages


def _page(name: str) -> str:
    context = click.Context(main, info_name="ottla")
    command = main.get_command(context, name)
    assert command is not None
    return "\n".join(_sections(command, click.Context(command, info_name=name, parent=context), level=1)) + "\n"


def _sections(command: click.Command, context: click.Context, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{context.command_path}`\n"
    yield _prose(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _sections(child, click.Context(child, info_name=name, parent=context), level=level + 1)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    records = [record for parameter in command.params if (record := parameter.get_help_record(context)) and record[1]]
    shared = [names for names, text in records if (names, text) in _shared()]
    rows = [_row(*record) for record in records if record not in _shared()]
    if rows:
        yield "| option | what it does |\n|---|---|"
        yield from rows
        yield ""
    if shared:
        listed = ", ".join(f"`{re.split(' [^-]', names)[0]}`" for names in shared)
        yield f"{'Also the' if rows else 'It has the'} [shared options](index.md#shared-options) {listed}.\n"


@functools.cache
def _shared() -> dict[tuple[str, str], int]:
    """Return the options that many commands have, each with its text, in the order in which commands list them."""
    context = click.Context(main, info_name="ottla")
    found = Counter(
        record
        for command in _leaves(main, context)
        for parameter in command.params
        if (record := parameter.get_help_record(context)) and record[1]
    )
    return {record: number for record, number in found.items() if number >= _MANY}


def _shared_rows() -> str:
    return "".join(f"{_row(*record)}\n" for record in _shared())


def _leaves(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _leaves(command, context)
        elif command is not None:
            yield command


def _prose(command: click.Command) -> str:
    """The help text; what click keeps as it is (`\\b`) becomes a block of its own."""
    text = inspect.cleandoc(command.help or command.short_help or "")
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            paragraphs.append(f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```")
        else:
            paragraphs.append(_escaped(" ".join(paragraph.split())))
    return "\n\n".join(paragraphs) + "\n"


def _row(names: str, text: str) -> str:
    return f"| `{names}` | {_escaped(text).replace('|', chr(92) + '|')} |"


def _escaped(text: str) -> str:
    """Text of a terminal as Markdown: what looks like a tag or a link is neither. Code between backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>\[\]*_])", r"\\\1", part).replace("\n", " ") for part in parts
    )
