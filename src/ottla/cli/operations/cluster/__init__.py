"""`ottla cluster`: brokers, disks, the metadata quorum, settings, transactions, and all facts as a file."""

from __future__ import annotations

import click

from ottla.cli.operations.cluster.alter import elect, set_settings, unset_settings
from ottla.cli.operations.cluster.parts import features, quorum, settings, transactions
from ottla.cli.operations.cluster.show import brokers, disks, facts, show
from ottla.cli.shared.groups import CommandGroup


@click.group(cls=CommandGroup)
def cluster() -> None:
    """The cluster itself: brokers, disks, quorum, settings, transactions.

    \b
    Examples:
      ottla cluster show
      ottla cluster disks
      ottla cluster facts > facts.json
    """


for command in (
    show,
    brokers,
    disks,
    quorum,
    features,
    settings,
    set_settings,
    unset_settings,
    transactions,
    elect,
    facts,
):
    cluster.add_command(command)
