"""A group of commands that suggests the nearest command for a misspelt one, at every level."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any

import click

from ottla.cli.shared.words import RENAMED_COMMANDS, SAME_COMMANDS, command_meant


def suggestion(given: str, names: Collection[str]) -> str:
    """Return the nearest of the names as a sentence, or all of them if there are few, or nothing. Begins with a
    space."""
    import difflib  # not needed where all is spelled right

    near = difflib.get_close_matches(given, names, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" There are {', '.join(sorted(names))}." if 0 < len(names) <= _FEW else ""


_FEW = 40


class CommandGroup(click.Group):
    """`@click.group(cls=CommandGroup)`. Groups and commands below it suggest as well.

    `late` are commands as `module:attribute` by their names: each is imported when it is asked for.
    """

    def __init__(self, *args: Any, late: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._late = dict(late or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._late})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = self._name_of(ctx, cmd_name)
        if cmd_name not in self._late:
            return super().get_command(ctx, cmd_name)
        module_name, _, attribute = self._late[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module_name), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and self._name_of(ctx, args[0]) not in names and not args[0].startswith("-"):
            meant = command_meant(args[0], names)
            hint = suggestion(args[0], names) if meant is None else f" Did you mean {meant!r}?"
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        if args and args[0] in RENAMED_COMMANDS and self._name_of(ctx, args[0]) != args[0]:
            name = RENAMED_COMMANDS[args[0]]
            click.echo(f"ottla: {args[0]!r} is called {name!r} since 0.2; the old name goes with 0.3", err=True)
        return super().resolve_command(ctx, args)

    def _name_of(self, ctx: click.Context, given: str) -> str:
        """Return the command's own name, where the given one is a word of other tools for it."""
        same = SAME_COMMANDS.get(given)
        if same is None:
            return given
        names = self.list_commands(ctx)
        return same if same in names and given not in names else given


CommandGroup.group_class = CommandGroup
