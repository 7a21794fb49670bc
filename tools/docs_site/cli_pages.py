"""Reference of the command line: one page for each command of `ottla`, made from what `--help` is made from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from ottla.cli import COMMANDS, main

_SHARED = {
    "ottla.cli.shared.cluster_options": "reach a cluster",
    "ottla.cli.shared.output": "print",
    "ottla.cli.shared.consent": "ask",
}


def cli_pages() -> dict[str, str]:
    """Path in the documentation: text."""
    pages = {f"reference/cli/{name}.md": _page(name) for name in COMMANDS}
    rows = "".join(f"| [`ottla {name}`]({name}.md) | {COMMANDS[name][1]} |\n" for name in sorted(COMMANDS))
    pages["reference/cli/index.md"] = (
        "# Command line\n\n`ottla --help` lists the commands, `ottla COMMAND --help` says what one takes.\n\n"
        f"| command | |\n|---|---|\n{rows}\n## Exit codes\n\n"
        "| code | means |\n|---|---|\n| 0 | done |\n| 1 | done, but something failed or was found |\n"
        "| 2 | not begun: an argument, a setting or the cluster is wrong |\n| 130 | interrupted |\n\n"
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
    rows = [record for parameter in command.params if (record := _option(parameter, context))]
    if rows:
        yield "| option | |\n|---|---|"
        yield from rows
        yield ""


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


def _option(parameter: click.Parameter, context: click.Context) -> str | None:
    record = parameter.get_help_record(context)
    if record is None:
        return None
    names, text = record
    return f"| `{names.replace('|', chr(92) + '|')}` | {_escaped(text).replace('|', chr(92) + '|')} |"


def _escaped(text: str) -> str:
    """Text of a terminal as Markdown: what looks like a tag or a link is neither. Code between backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>\[\]*_])", r"\\\1", part).replace("\n", " ") for part in parts
    )
