"""The examples in the help of commands, and which tests run them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from ottla.cli import main


def commands_of(noun: str) -> Iterator[tuple[str, click.Command]]:
    """A command of `ottla` and all commands and groups below it, by the words that a person types."""
    command = main.get_command(click.Context(main), noun)
    assert command is not None
    yield from _below(noun, command)


def _below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(f"{path} {name}", below)


def examples_of(text: str) -> list[str]:
    """The commands below "Example:" or "Examples:"."""
    return re.findall(r"^\s+(ottla .+)$", re.split(r"Examples?:\n", text, maxsplit=1)[-1], re.MULTILINE)


def examples_of_nouns(*nouns: str) -> list[tuple[str, str]]:
    """(command, example), of every command below these."""
    return [
        (path, example)
        for noun in nouns
        for path, command in commands_of(noun)
        for example in examples_of(command.help or "")
    ]
