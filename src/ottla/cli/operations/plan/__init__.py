"""`ottla plan`: make, check and execute plans of where replicas should be."""

from __future__ import annotations

import click

from ottla.cli.operations.plan.check import check
from ottla.cli.operations.plan.create import (
    add_brokers,
    dirs,
    leaders,
    rebalance,
    remove_brokers,
    replication_factor,
)
from ottla.cli.operations.plan.execution import cancel, run, status
from ottla.cli.operations.plan.throttles import throttle
from ottla.cli.operations.plan.watching import watch
from ottla.cli.shared.groups import CommandGroup


@click.group(cls=CommandGroup)
def plan() -> None:
    """Plan the placement of replicas by bytes, and execute plans.

    A plan is Kafka's own reassignment JSON. Nothing moves before `ottla plan run`.

    \b
    Examples:
      ottla plan rebalance --sample 0s -o rebalance.json
      ottla plan check rebalance.json --sample 0s
      ottla plan run rebalance.json --throttle 50MB --yes
    """


for command in (
    rebalance,
    add_brokers,
    remove_brokers,
    replication_factor,
    dirs,
    leaders,
    check,
    run,
    status,
    throttle,
    cancel,
    watch,
):
    plan.add_command(command)
