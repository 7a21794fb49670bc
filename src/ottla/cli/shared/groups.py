"""A group of commands that suggests the nearest command for a misspelt one, at every level."""

from __future__ import annotations

import difflib
from collections.abc import Collection

import click


def suggestion(given: str, names: Collection[str]) -> str:
    """The nearest of the names as a sentence, or all of them if there are few, or nothing. Begins with a space."""
    near = difflib.get_close_matches(given, names, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" There are {', '.join(sorted(names))}." if 0 < len(names) <= _FEW else ""


_FEW = 40


class CommandGroup(click.Group):
    """`@click.group(cls=CommandGroup)`. Groups and commands below it suggest as well."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{suggestion(args[0], names)}")
        return super().resolve_command(ctx, args)


CommandGroup.group_class = CommandGroup
