"""`ottla topics`: seen, created, changed, copied, emptied and deleted."""

from __future__ import annotations

import click

from ottla.cli.shared.groups import CommandGroup

_ROOM = "ottla.cli.operations.topics"
_COMMANDS = {
    "list": f"{_ROOM}.look:list_topics",
    "show": f"{_ROOM}.look:show",
    "create": f"{_ROOM}.change:create",
    "set": f"{_ROOM}.change:set_settings",
    "unset": f"{_ROOM}.change:unset_settings",
    "add-partitions": f"{_ROOM}.change:add_partitions",
    "set-replicas": f"{_ROOM}.change:set_replicas",
    "trim": f"{_ROOM}.remove:trim",
    "delete": f"{_ROOM}.remove:delete",
    "copy": "ottla.cli.records.copy:copy",
}


@click.group(cls=CommandGroup, late=_COMMANDS)
def topics() -> None:
    """Show, create, change, copy, trim and delete topics.

    \b
    Examples:
      ottla topics list 'orders*' --sort bytes
      ottla topics create invoices --partitions 6 retention.ms=7d
      ottla topics set orders retention.ms=3d --dry-run
    """
