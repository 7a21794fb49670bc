"""`ottla topics`: list, create, change, copy, empty and delete topics."""

from __future__ import annotations

import click

from ottla.cli.shared.groups import CommandGroup

_ROOM = "ottla.cli.operations.topics"
_COMMANDS = {
    "list": f"{_ROOM}.show:list_topics",
    "show": f"{_ROOM}.show:show",
    "create": f"{_ROOM}.alter:create",
    "set": f"{_ROOM}.settings:set_settings",
    "unset": f"{_ROOM}.settings:unset_settings",
    "add-partitions": f"{_ROOM}.alter:add_partitions",
    "set-replicas": f"{_ROOM}.alter:set_replicas",
    "delete-records": f"{_ROOM}.delete:delete_records",
    "delete": f"{_ROOM}.delete:delete",
    "copy": "ottla.cli.records.copy:copy",
}


@click.group(cls=CommandGroup, late=_COMMANDS)
def topics() -> None:
    """Show, create, change, copy and delete topics, and delete their oldest records.

    \b
    Examples:
      ottla topics list 'orders*' --sort bytes
      ottla topics create invoices --partitions 6 retention.ms=7d
      ottla topics set orders retention.ms=3d --dry-run
    """
