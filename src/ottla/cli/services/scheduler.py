"""`ottla scheduler run`: deliver delayed messages when they are due."""

from __future__ import annotations

import signal
from typing import Any

import click

from ottla.cli.shared.cluster_options import check_reachable, reaches_a_cluster
from ottla.cli.shared.groups import CommandGroup
from ottla.config import Settings, security_of
from ottla.schedule.headers import DEFAULT_NAME


@click.group(cls=CommandGroup)
def scheduler() -> None:
    """Deliver delayed messages."""


@scheduler.command("run")
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="The schedule.")
@reaches_a_cluster
@click.option("--create/--no-create", default=True, show_default=True, help="Create the schedule's topic if missing.")
@click.option("--replication-factor", type=click.IntRange(1), help="Of a topic that is created (3, or all brokers).")
def run(kafka: Settings, name: str, create: bool, replication_factor: int | None) -> None:
    """Deliver the messages of a schedule until SIGTERM or Ctrl-C. Any number may run: they share the work."""
    from ottla.sync.serve.scheduler import Scheduler

    check_reachable(kafka)
    made = Scheduler(
        kafka["bootstrap.servers"],
        name=name,
        settings=security_of(kafka),
        create=create,
        replication_factor=replication_factor,
    )

    def stop(*_: Any) -> None:
        made.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    click.echo(f"ottla: delivering {made.topic}; Ctrl-C or SIGTERM stops it", err=True)
    try:
        made.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
