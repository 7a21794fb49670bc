"""`ottla pipeline`: run, replay and look at pipelines that a module declares.

    ottla pipeline run reports.delays:pipeline

Only `run`, `batch`, `replay` and `prepare` start Spark; the rest answers from the definition, the checkpoint and the
broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.pipelines.checkpoint import checkpoint
from ottla.cli.pipelines.prepare import prepare
from ottla.cli.shared.cluster_options import set_option
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.cli.shared.output import Output, prints, say
from ottla.cli.shared.target import import_target, names_of
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipeline import Pipeline


_of_a_pipeline: Final = takes(
    click.argument("target", metavar="MODULE:PIPELINE"),
    click.option(
        "--bootstrap-servers",
        help="Used instead of the pipeline's own, or of OTTLA_BOOTSTRAP_SERVERS in the environment.",
    ),
    click.option("--checkpoint", metavar="FOLDER", help="Used instead of the pipeline's own."),
)


def _as_it_is(_name: str, value: str) -> str:
    """Pass settings on unchanged: Spark reads them itself."""
    return value


_on_spark: Final = takes(
    click.option("--master", help="Where to run: local[*], spark://..., yarn, k8s://...  [default: local[*]]"),
    set_option("spark.executor.memory=4g", what="A setting of Spark", metavar="KEY=VALUE", value_of=_as_it_is),
)


_VERSION = click.option("--version", help="Run or show this version instead of the pipeline's own.")
_ONLY = click.option("--only", multiple=True, metavar="SINK", help="Only this sink; may be repeated.")


_LAG = ("sink", "topic", "partition", "position", "end", "lag")


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Pipelines on Spark: run, replay, describe, lag, checkpoints.

    \b
    Examples:
      ottla pipeline run reports.delays:pipeline --available-now
      ottla pipeline lag reports.delays:pipeline
      ottla pipeline describe reports.delays:pipeline
    """


pipeline.add_command(checkpoint)
pipeline.add_command(prepare)


@pipeline.command()
@_of_a_pipeline
@_on_spark
@_VERSION
@click.option("--every", metavar="TIME", help="Time between micro-batches, as 10s. Without a pause if left out.")
@click.option("--available-now", is_flag=True, help="Read all available records, then stop.")
def run(
    target: str, master: str | None, settings: dict[str, str], every: str | None, available_now: bool, **where: Any
) -> None:
    """Run a pipeline as a stream until SIGTERM or Ctrl-C; it stops after the running micro-batches.

    \b
    Example:
      ottla pipeline run reports.delays:pipeline --available-now
    """
    found = _load(target, **where)
    click.echo(f"ottla: running {target} {found.version}; Ctrl-C or SIGTERM stops it", err=True)
    found.run(_session(found, master, settings), every=every, available_now=available_now)


@pipeline.command()
@_of_a_pipeline
@_on_spark
@_ONLY
@click.option("--since", default="earliest", show_default=True, help="earliest, -1h, an ISO 8601 time, or group:NAME.")
@click.option("--version", "version", required=True, help="The version to write; it replaces '{version}' in outputs.")
@prints
def replay(
    target: str,
    master: str | None,
    settings: dict[str, str],
    only: tuple[str, ...],
    since: str,
    version: str,
    out: Output,
    **where: Any,
) -> None:
    """Read history again into a new version, up to now. Run it again to read newer records. Then: switch.

    \b
    Example:
      ottla pipeline replay reports.delays:pipeline --version v2 --since -7d
    """
    found = _load(target, **where)
    again = found.replay(_session(found, master, settings), version=version, since=since, only=only)
    say(f"{found.name} {version} has read everything up to now; {found.live_version()} is live")
    _show_lag(again, out)


@pipeline.command()
@_of_a_pipeline
@_on_spark
@_ONLY
@_VERSION
@click.option("--since", default="earliest", show_default=True, help="earliest, -1h, an ISO 8601 time, or group:NAME.")
@click.option("--until", default="now", show_default=True, help="now, -5m or an ISO 8601 time.")
def batch(
    target: str,
    master: str | None,
    settings: dict[str, str],
    only: tuple[str, ...],
    since: str,
    until: str,
    **where: Any,
) -> None:
    """Run a pipeline once over the records between two times, as a bounded batch without a checkpoint.

    \b
    Example:
      ottla pipeline batch reports.delays:pipeline --version check --since -1h
    """
    found = _load(target, **where)
    report = found.batch(_session(found, master, settings), since=since, until=until, only=only)
    click.echo(f"{report.records:,} records read")
    for sink, output in report.outputs.items():
        click.echo(f"{sink}: {output}")


@pipeline.command()
@_of_a_pipeline
@click.argument("version")
@click.option("--force", is_flag=True, help="Switch even if it has read less than the live version.")
def switch(target: str, version: str, force: bool, **where: Any) -> None:
    """Make VERSION the live one, once it has read as far as the live version.

    \b
    Example:
      ottla pipeline switch reports.delays:pipeline v2
    """
    found = _load(target, **where)
    before = found.live_version()
    found.switch_over(version, force=force)
    click.echo(f"{found.name}: {version} is live, {before} was")


@pipeline.command()
@_of_a_pipeline
@_VERSION
@click.option("--plan", "with_plan", is_flag=True, help="Also show what the next micro-batches would read, by task.")
def describe(target: str, with_plan: bool, **where: Any) -> None:
    """Show the definition of a pipeline; nothing runs.

    \b
    Example:
      ottla pipeline describe reports.delays:pipeline --plan
    """
    found = _load(target, **where)
    click.echo(found.describe())
    click.echo(f"live version: {found.live_version()}")
    if with_plan:
        click.echo(str(found.plan()))


@pipeline.command()
@_of_a_pipeline
@_VERSION
@prints
def lag(target: str, out: Output, **where: Any) -> None:
    """Show the lag of each sink, by its checkpoint. The pipeline may run elsewhere.

    \b
    Examples:
      ottla pipeline lag reports.delays:pipeline
      ottla pipeline lag reports.delays:pipeline --format json
    """
    _show_lag(_load(target, **where), out)


def _show_lag(found: Pipeline, out: Output) -> None:
    rows = found.lag()
    items = [
        {
            "sink": row.sink,
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "position": row.position,
            "end": row.end,
            "lag": row.records,
        }
        for row in rows
    ]
    out.items("pipeline.lag/1", _LAG, items, pipeline=found.name, version=found.version)
    for name in found.sinks:
        say(f"{name}: {sum(row.records for row in rows if row.sink == name):,} records behind")


def load_pipeline(target: str) -> Pipeline:
    """Return the pipeline that `module:attribute` names, or a ConfigError that says which part of it was not found."""
    from ottla.spark.pipeline import Pipeline

    example = "ottla pipeline run reports.delays:pipeline"
    module, attribute = import_target(target, wanted="MODULE:PIPELINE", example=example)
    found = getattr(module, attribute, None)
    if not isinstance(found, Pipeline):
        known = names_of(module, Pipeline)
        hint = f"; the module has {', '.join(known)}" if known else ""
        raise ConfigError(f"{target}: {attribute!r} is a {type(found).__name__}, wanted an ottla.spark.Pipeline{hint}")
    return found


def _load(target: str, bootstrap_servers: str | None, checkpoint: str | None, version: str | None = None) -> Pipeline:
    found = load_pipeline(target)
    return found.at(version=version, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint)


def _session(found: Pipeline, master: str | None, settings: dict[str, str]) -> SparkSession:
    from ottla.spark import session

    return session(found.name, master=master, config=settings)
