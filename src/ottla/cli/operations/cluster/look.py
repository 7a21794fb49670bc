"""`ottla cluster show`, `brokers`, `disks` and `facts`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.operations.notes import say_not_read, wait
from ottla.cli.operations.topics.look import problems_of
from ottla.cli.shared.amounts import bytes_text, moment
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.output import Column, Format, Output, prints, say
from ottla.cli.shared.parameter_types import Seconds

if TYPE_CHECKING:
    from ottla.admin import BrokerFact, ClusterFacts
    from ottla.config import Settings

_PARTS = (
    "topics",
    "topic_settings",
    "broker_settings",
    "offsets",
    "newest_timestamps",
    "expiry",
    "last_hour",
    "log_dirs",
    "reached",
    "groups",
    "group_members",
    "group_offsets",
    "commit_times",
    "transactions",
    "moves",
    "quorum",
    "features",
    "acls",
    "quotas",
    "schedules",
)


@click.command()
@reaches_a_cluster
@prints
def show(kafka: Settings, out: Output) -> None:
    """Show the size of the cluster, and its obvious problems.

    \b
    Examples:
      ottla cluster show
      ottla cluster show --format json
    """
    from ottla.admin import Part

    with open_admin(kafka) as admin:
        found = admin.facts({Part.TOPICS, Part.LOG_DIRS})
    item = cluster_item(found)
    if out.format is Format.TABLE:
        item["bytes"] = bytes_text(item["bytes"]) or None
    out.one("cluster.show/1", item)
    say_not_read(found)


def cluster_item(found: ClusterFacts) -> dict[str, Any]:
    """What `cluster.show/1` has, of facts with topics and log directories."""
    partitions = list(found.by_partition.values())
    sizes = [log_dir.replica_bytes for broker in found.brokers for log_dir in broker.log_dirs or ()]
    return {
        "cluster_id": found.cluster_id,
        "at": moment(found.at_ms),
        "controller": found.controller_id,
        "brokers": len(found.brokers),
        "fenced_brokers": [broker.id for broker in found.brokers if broker.is_fenced],
        "topics": len(found.topics),
        "partitions": len(partitions),
        "replicas": sum(len(each.replicas) for each in partitions),
        "bytes": sum(sizes) if sizes else None,
        "problems": problems_of(partitions),
    }


@click.command()
@reaches_a_cluster
@prints
def brokers(kafka: Settings, out: Output) -> None:
    """Show each broker: address, rack, leaders, replicas, and whether it responds.

    \b
    Examples:
      ottla cluster brokers
      ottla cluster brokers --format json
    """
    from ottla.admin import Part

    with open_admin(kafka) as admin:
        found = admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.REACHED})
    columns = (
        Column("broker", right=True),
        Column("address"),
        Column("rack"),
        Column("leaders", right=True),
        Column("replicas", right=True),
        Column("bytes", right=True, text=bytes_text),
        Column("state"),
    )
    out.items("cluster.brokers/1", columns, broker_items(found))
    say_not_read(found)


def broker_items(found: ClusterFacts) -> list[dict[str, Any]]:
    """What `cluster.brokers/1` has, of facts with topics, log directories and who was reached."""
    leaders = Counter(each.leader for each in found.by_partition.values())
    replicas = Counter(broker for each in found.by_partition.values() for broker in each.replicas)
    return [
        {
            "broker": broker.id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "leaders": leaders[broker.id],
            "replicas": replicas[broker.id],
            "bytes": None if broker.log_dirs is None else sum(each.replica_bytes for each in broker.log_dirs),
            "state": _state(broker, found),
            "controller": broker.id == found.controller_id,
        }
        for broker in found.brokers
    ]


@click.command()
@reaches_a_cluster
@prints
@click.option(
    "--forecast",
    type=Seconds(0, min_open=True),
    metavar="SECONDS",
    help="Measure for this long how fast each fills, and forecast when it is full.",
)
def disks(kafka: Settings, out: Output, forecast: float | None) -> None:
    """Show the log directories of each broker: bytes of replicas, room on the disk, errors.

    Directories on the same disk report the same room.

    \b
    Examples:
      ottla cluster disks
      ottla cluster disks --forecast 1
    """
    from ottla.admin import Part

    with open_admin(kafka) as admin:
        found = admin.facts({Part.LOG_DIRS})
        before = None
        if forecast is not None:
            before = found
            wait(forecast, "measuring")
            found = admin.facts({Part.LOG_DIRS})
    columns = [
        Column("broker", right=True),
        Column("path"),
        Column("replicas", right=True),
        Column("bytes", right=True, text=bytes_text),
        Column("total_bytes", title="disk", right=True, text=bytes_text),
        Column("usable_bytes", title="free", right=True, text=bytes_text),
        Column("error"),
    ]
    if before is not None:
        columns.insert(-1, Column("bytes_per_second", title="per second", right=True, text=bytes_text))
        columns.insert(-1, Column("full_in_ms", title="full in", right=True, text=_time))
    out.items("cluster.disks/1", columns, disk_items(found, before), empty="no broker returned a log directory")
    say_not_read(found)


def disk_items(found: ClusterFacts, before: ClusterFacts | None = None) -> list[dict[str, Any]]:
    """What `cluster.disks/1` has, of facts with log directories; with an earlier sample also when each is full."""
    items = [_disk(broker.id, log_dir) for broker in found.brokers for log_dir in broker.log_dirs or ()]
    if before is not None:
        _forecast(items, before, seconds=max(0.001, (found.at_ms - before.at_ms) / 1000))
    return items


@click.command()
@reaches_a_cluster
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_PARTS),
    help="Only these parts and what they need; may be repeated. Default: all but commit_times, which reads records.",
)
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only this topic; may be repeated."
)
@click.option(
    "--group", "groups", multiple=True, shell_complete=complete_groups, help="Only this group; may be repeated."
)
def facts(kafka: Settings, parts: tuple[str, ...], topics: tuple[str, ...], groups: tuple[str, ...]) -> None:
    """Print all facts of the cluster as JSON, for `ottla doctor --facts`. They hold no records and no passwords.

    \b
    Examples:
      ottla cluster facts > facts.json
      ottla cluster facts --part topics --part offsets --topic orders
    """
    from ottla.admin import Part, dump_facts
    from ottla.admin.read import EVERYTHING

    with open_admin(kafka) as admin:
        wanted = {Part(each) for each in parts} or set(EVERYTHING)
        found = admin.facts(wanted, topics=topics or None, groups=groups or None)
    click.echo(dump_facts(found).decode(), nl=False)
    say_not_read(found)
    say(f"{len(found.brokers)} brokers, {len(found.topics)} topics, {len(found.groups)} groups")


def _state(broker: BrokerFact, found: ClusterFacts) -> str:
    if broker.is_fenced:
        return "fenced"
    if broker.unreachable is not None:
        return "unreachable"
    if broker.answers_as is not None and broker.answers_as != found.cluster_id:
        return f"another cluster: {broker.answers_as}"
    return "ok"


def _disk(broker: int, log_dir: Any) -> dict[str, Any]:
    return {
        "broker": broker,
        "path": log_dir.path,
        "replicas": len(log_dir.replicas),
        "bytes": log_dir.replica_bytes,
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
        "cordoned": log_dir.is_cordoned,
        "error": log_dir.error,
    }


def _forecast(items: list[dict[str, Any]], before: ClusterFacts, *, seconds: float) -> None:
    """By the room that has gone on the disk, whoever took it."""
    usable = {(broker.id, each.path): each.usable_bytes for broker in before.brokers for each in broker.log_dirs or ()}
    for item in items:
        then, now = usable.get((item["broker"], item["path"])), item["usable_bytes"]
        rate = None if then is None or now is None else (then - now) / seconds
        item["bytes_per_second"] = None if rate is None else round(rate)
        item["full_in_ms"] = None if rate is None or rate <= 0 else round(now / rate * 1000)


def _time(milliseconds: int | None) -> str:
    from ottla.admin.doctor.finding import time_told

    return "" if milliseconds is None else time_told(milliseconds)
