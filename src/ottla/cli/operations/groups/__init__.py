"""`ottla groups`: seen, measured, set to other offsets, and deleted."""

from __future__ import annotations

import click

from ottla.cli.operations.groups.look import lag, list_groups, show
from ottla.cli.operations.groups.remove import delete, forget
from ottla.cli.operations.groups.resets import copy, reset, restore
from ottla.cli.shared.groups import CommandGroup


@click.group(cls=CommandGroup)
def groups() -> None:
    """Show consumer groups and their lag, set their offsets, delete them.

    \b
    Examples:
      ottla groups list --lagging
      ottla groups lag billing --age
      ottla groups reset billing --to -2h --dry-run
    """


for command in (list_groups, show, lag, reset, copy, restore, delete, forget):
    groups.add_command(command)
