"""`ottla schedule run`: deliver delayed messages when they are due."""

from __future__ import annotations

import click

from ottla.cli.services.schedule import name_option
from ottla.cli.shared.cluster_options import check_reachable, client_settings, reaches_a_cluster, takes_settings_of
from ottla.cli.shared.serving import serves_health, stopped_by_signals, telemetry_and_health
from ottla.config import Settings


@click.command()
@name_option
@reaches_a_cluster
@takes_settings_of("consumer")
@click.option("--create/--no-create", default=True, show_default=True, help="Create the schedule's topic if missing.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Replication factor of a created topic (default: 3, or the number of brokers).",
)
@serves_health
def run(
    kafka: Settings,
    name: str,
    create: bool,
    replication_factor: int | None,
    health_port: int | None,
    health_host: str,
) -> None:
    """Deliver the messages of a schedule until SIGTERM or Ctrl-C. Any number may run: they share the work.

    \b
    Examples:
      ottla schedule run
      ottla schedule run --name reminders --health-port 8080
    """
    from ottla.sync.serve.scheduler import Scheduler

    check_reachable(kafka)
    made = Scheduler(
        kafka["bootstrap.servers"],
        name=name,
        settings=client_settings(kafka),
        create=create,
        replication_factor=replication_factor,
    )

    with telemetry_and_health(made.topic, made.health, health_host, health_port), stopped_by_signals(made.stop):
        click.echo(f"ottla: delivering {made.topic}; Ctrl-C or SIGTERM stops it", err=True)
        made.run()
