"""`ottla groups`: list, measure, reset and delete consumer groups."""

from __future__ import annotations

import click

from ottla.cli.shared.groups import CommandGroup

_ROOM = "ottla.cli.operations.groups"
_COMMANDS = {
    "list": f"{_ROOM}.show:list_groups",
    "show": f"{_ROOM}.show:show",
    "lag": f"{_ROOM}.show:lag",
    "reset": f"{_ROOM}.resets:reset",
    "copy": f"{_ROOM}.resets:copy",
    "restore": f"{_ROOM}.resets:restore",
    "delete": f"{_ROOM}.delete:delete",
    "delete-offsets": f"{_ROOM}.delete:delete_offsets",
}


@click.group(cls=CommandGroup, late=_COMMANDS)
def groups() -> None:
    """Show consumer groups and their lag, set their offsets, delete them.

    \b
    Examples:
      ottla groups list --lagging
      ottla groups lag billing --age
      ottla groups reset billing --to -2h --dry-run
    """
