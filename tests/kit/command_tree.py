"""The commands of `ottla`, each by the words that a person types."""

from __future__ import annotations

from collections.abc import Iterator

import click


def walked(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something; groups of commands are walked through."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from walked(below, (*path, name))
