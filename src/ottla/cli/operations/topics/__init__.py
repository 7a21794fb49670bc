"""`ottla topics`: seen, created, changed, copied, emptied and deleted."""

from __future__ import annotations

import click

from ottla.cli.operations.topics.change import add_partitions, create, set_replicas, set_settings, unset_settings
from ottla.cli.operations.topics.look import list_topics, show
from ottla.cli.operations.topics.remove import delete, trim
from ottla.cli.shared.groups import CommandGroup


@click.group(cls=CommandGroup, late={"copy": "ottla.cli.records.copy:copy"})
def topics() -> None:
    """Show, create, change, copy, trim and delete topics.

    \b
    Examples:
      ottla topics list 'orders*' --sort bytes
      ottla topics create invoices --partitions 6 retention.ms=7d
      ottla topics set orders retention.ms=3d --dry-run
    """


for command in (list_topics, show, create, set_settings, unset_settings, add_partitions, set_replicas, trim, delete):
    topics.add_command(command)
