"""`ottla pipeline checkpoint`: look into the checkpoint of a Spark query, and change it with care.

Works on the checkpoint of any query that reads Kafka, with this format or Spark's own, not only on those of
declared pipelines. Whatever writes asks first (`--yes` answers), keeps a backup, and refuses while a pipeline runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime

import click

from ottla.cli.shared.output import Format, Output, prints, say
from ottla.errors import ConfigError, InputError
from ottla.records import TopicPartition

_PARTITIONS = ("topic", "partition", "position", "planned")


@click.group()
def checkpoint() -> None:
    """Show, edit and reset the checkpoint of a streaming query.

    \b
    Example:
      ottla pipeline checkpoint show checkpoints/delays/v1/lake
    """


@checkpoint.command()
@click.argument("path")
@prints
def show(path: str, out: Output) -> None:
    """Show the checkpoint at PATH: batches, offsets, watermark.

    \b
    Examples:
      ottla pipeline checkpoint show checkpoints/delays/v1/lake
      ottla pipeline checkpoint show checkpoints/delays/v1/lake --format json
    """
    from ottla.spark.checkpoints.checkpoint import read_checkpoint

    found = read_checkpoint(path)
    committed, unfinished = found.committed, found.unfinished
    item = {
        "query": found.query_id,
        "committed_batch": None if committed is None else committed.number,
        "unfinished_batch": None if unfinished is None else unfinished.number,
        "watermark": _moment(committed.watermark_ms) if committed is not None and committed.watermark_ms else None,
        "has_state": found.has_state,
    }
    planned = {} if unfinished is None else unfinished.position
    partitions = [
        {"topic": p.topic, "partition": p.partition, "position": offset, "planned": planned.get(p)}
        for p, offset in sorted(found.position.items())
    ]
    if out.format is Format.PLAIN:
        out.items("pipeline.partitions/1", _PARTITIONS, partitions)
        return
    is_table = out.format is Format.TABLE
    out.one("pipeline.checkpoint.show/1", item if is_table else {**item, "partitions": partitions})
    if is_table:
        click.echo()
        out.items("pipeline.partitions/1", _PARTITIONS, partitions)
    if unfinished is not None:
        say(f"batch {unfinished.number} is planned and not committed: a restart runs it again, with the same offsets")
    if found.has_state:
        say("it has state of windows, joins or dedup")


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


@checkpoint.command("set-offsets")
@click.argument("path")
@click.option(
    "--to", "target", required=True, help="An offset, or with --bootstrap-servers: earliest, latest, -1h, a time."
)
@click.option("--topic", help="Only this topic.")
@click.option("--partition", type=click.IntRange(0), multiple=True, help="Only this partition of it; may be repeated.")
@click.option(
    "--bootstrap-servers", envvar="OTTLA_BOOTSTRAP_SERVERS", help="Needed to look up a position that is not a number."
)
@click.option(
    "--keep-state", is_flag=True, help="Proceed even if windows, joins or dedup keep state of earlier records."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def set_offsets(
    path: str,
    target: str,
    topic: str | None,
    partition: tuple[int, ...],
    bootstrap_servers: str | None,
    keep_state: bool,
    yes: bool,
) -> None:
    """Set the offsets of the query at PATH.

    \b
    Example:
      ottla pipeline checkpoint set-offsets checkpoints/delays/v1/lake --to 0 --topic delays --yes
    """
    from ottla.spark.checkpoints.checkpoint import read_checkpoint
    from ottla.spark.checkpoints.checkpoint_edit import check_new_offsets
    from ottla.spark.checkpoints.checkpoint_edit import set_offsets as change

    found = read_checkpoint(path)
    if partition and topic is None:
        raise InputError("--partition: found no --topic, wanted the topic of the partition")
    chosen = [
        p for p in sorted(found.position) if topic in (None, p.topic) and (not partition or p.partition in partition)
    ]
    if not chosen:
        raise ConfigError(
            f"{path}: the query reads no such partition; it reads {', '.join(map(str, sorted(found.position)))}"
        )
    wanted = _offsets(chosen, target, bootstrap_servers)
    check_new_offsets(found, wanted, keep_state=keep_state)
    for p in chosen:
        click.echo(f"  {p}: {found.position[p]:,} -> {wanted[p]:,}")
    if found.unfinished is not None:
        click.echo(f"  batch {found.unfinished.number}, planned and not committed, is forgotten")
    if not yes:
        click.confirm("Change the checkpoint?", abort=True)
    backup = change(path, wanted, keep_state=keep_state)
    click.echo(f"changed; what was there is in {backup}")


@checkpoint.command()
@click.argument("path")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(path: str, yes: bool) -> None:
    """Reset the query at PATH, so that it starts from the beginning.

    Its output must be new as well: Spark's file sink remembers batch numbers.

    \b
    Example:
      ottla pipeline checkpoint reset checkpoints/delays/v1/lake --yes
    """
    from ottla.spark.checkpoints.checkpoint import read_checkpoint
    from ottla.spark.checkpoints.checkpoint_edit import reset as move_away

    found = read_checkpoint(path)
    committed = "nothing committed" if found.committed is None else f"batch {found.committed.number} committed"
    click.echo(f"{found.location}: {committed}, {'with' if found.has_state else 'no'} state")
    if not yes:
        click.confirm("Begin anew?", abort=True)
    backup = move_away(path)
    click.echo(f"reset; what was there is in {backup}")


def _offsets(
    partitions: Iterable[TopicPartition], target: str, bootstrap_servers: str | None
) -> dict[TopicPartition, int]:
    wanted = list(partitions)
    if re.fullmatch("[0-9]{1,18}", target):
        return dict.fromkeys(wanted, int(target))
    if bootstrap_servers is None:
        raise InputError(f"--to {target}: give --bootstrap-servers to look it up")
    from ottla.wire_client import EARLIEST, Cluster, wire_settings
    from ottla.wire_client.fetching.position_lookup import parse_position_to_change, resolve

    parse_position_to_change(target, now_ms=time.time_ns() // 1_000_000)
    with Cluster(wire_settings(bootstrap_servers=bootstrap_servers)) as cluster:
        return resolve(cluster, wanted, target, default=EARLIEST)
