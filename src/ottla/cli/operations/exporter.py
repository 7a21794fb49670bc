"""`ottla exporter`: serve a cluster's metrics until SIGTERM or Ctrl-C."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.browse.human_amounts import milliseconds
from ottla.cli.shared.cluster_options import cluster_opener, reaches_a_cluster, timeout_s
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import port_option
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import say, warn
from ottla.cli.shared.serving import stopped_by_signals
from ottla.cli.shared.visible import visible
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.config import Settings

PORT: Final = 9308
"""The port that the list of Prometheus' exporters has for Kafka."""


@click.command()
@reaches_a_cluster
@port_option(PORT)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 in a container.")
@click.option("--every", default="30s", show_default=True, metavar="TIME", help="How often to read the cluster.")
@click.option(
    "--doctor-every",
    default="5m",
    show_default=True,
    metavar="TIME",
    help="How often to run the checks of `ottla doctor`; 0s for never.",
)
@click.option("--skip", multiple=True, metavar="ID[,ID]", help="Not these checks of the doctor; may be repeated.")
@click.option("--baseline", type=FILE, help="A file of accepted findings.")
@click.option(
    "--partitions", "by_partition", is_flag=True, help="Also serve series of single partitions, and lag by partition."
)
@click.option(
    "--max-series",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Serve at most so many series of each metric.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out groups that match, as 'ottla-*', and findings about them; repeatable.",
)
@click.option("--once", is_flag=True, help="Read the cluster once, print the metrics, and exit.")
def exporter(
    kafka: Settings,
    port: int,
    host: str,
    every: str,
    doctor_every: str,
    skip: tuple[str, ...],
    baseline: Path | None,
    by_partition: bool,
    max_series: int,
    exclude: tuple[str, ...],
    once: bool,
) -> None:
    """Serve metrics of a cluster to Prometheus: lag of all groups, brokers, disks, topics, the doctor's findings.

    It changes nothing, and DESCRIBE on what it shows is enough. With READ it also counts the records of small lags that
    do not change. If the cluster cannot be read, `ottla_cluster_up` is 0 until a later read succeeds. With --once the
    exit code is 1 if the cluster could not be read.

    \b
    Examples:
      ottla exporter
      ottla exporter --cluster prod --host 0.0.0.0 --partitions
      ottla exporter --once --skip STO06
    """
    from ottla.admin import Admin
    from ottla.admin.doctor import chosen, load_baseline
    from ottla.admin.facts.facts_file import read_bounded
    from ottla.exporter.cluster_readings import ExportChoices
    from ottla.exporter.metrics_server import metrics_server
    from ottla.exporter.reading_loop import ReadingLoop, connect_times
    from ottla.wire_client.client_settings import connection_settings

    skipped = tuple(each.strip().upper() for given in skip for each in given.split(",") if each.strip())
    chosen(skip=skipped)
    choices = ExportChoices(
        by_partition=by_partition,
        most_series=max_series,
        excluded_groups=exclude,
        skipped_checks=skipped,
        baseline=None if baseline is None else load_baseline(read_bounded(baseline), source=str(baseline)),
    )
    every_s = milliseconds("--every", every) / 1000
    if every_s < 1:
        raise ConfigError(f"--every: found {every}, wanted 1s or more")
    doctor_every_s = milliseconds("--doctor-every", doctor_every) / 1000
    limit_ms = round(timeout_s() * 1000)
    wire = connection_settings(dict(kafka), api_timeout_ms=limit_ms, request_timeout_ms=limit_ms)
    with Admin(settings=dict(kafka), timeout_s=timeout_s()) as admin:
        loop = ReadingLoop(
            admin,
            lambda facts: connect_times(facts, wire),
            choices,
            open_cluster=cluster_opener(kafka),
            every_s=every_s,
            doctor_every_s=doctor_every_s or None,
            warn=lambda text: warn(visible(text)),
        )
        if once:
            loop.read()
            click.echo(loop.scrape(), nl=False)
            if loop.problem is not None:
                fail()
            return
        stopped = threading.Event()
        try:
            server = metrics_server(loop.scrape, lambda: loop.problem, host=host, port=port)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"--host {host} --port {port}: cannot listen there: {error}") from error
        with stopped_by_signals(stopped.set):
            try:
                shown = f"[{host}]" if ":" in host else host
                say(f"metrics at http://{shown}:{server.port}/metrics")
                loop.start()
                stopped.wait()
            finally:
                server.close()
                loop.close()
