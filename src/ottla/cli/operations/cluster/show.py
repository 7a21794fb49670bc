"""`ottla cluster show`, `brokers`, `disks` and `facts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.browse.cluster_items import broker_items, cluster_item, disk_items
from ottla.browse.human_amounts import bytes_text, duration_text
from ottla.cli.operations.notes import say_not_read, wait
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.output import Column, Format, Output, prints, say
from ottla.cli.shared.parameter_types import Seconds

if TYPE_CHECKING:
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
    "group_settings",
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
    columns = ("broker", "address", "rack", "leaders", "replicas", Column("bytes", text=bytes_text), "state")
    out.items("cluster.brokers/1", columns, broker_items(found))
    say_not_read(found)


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
    columns: list[Column | str] = ["broker", "path", "replicas", Column("bytes", text=bytes_text)]
    columns.append(Column("total_bytes", "disk", text=bytes_text))
    columns.append(Column("usable_bytes", "free", text=bytes_text))
    if before is not None:
        columns.append(Column("bytes_per_second", "per second", text=bytes_text))
        columns.append(Column("full_in_ms", "full in", text=duration_text))
    out.items(
        "cluster.disks/1", [*columns, "error"], disk_items(found, before), empty="no broker returned a log directory"
    )
    say_not_read(found)


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
    from ottla.admin.facts.facts_reader import EVERYTHING

    with open_admin(kafka) as admin:
        wanted = {Part(each) for each in parts} or set(EVERYTHING)
        found = admin.facts(wanted, topics=topics or None, groups=groups or None)
    click.echo(dump_facts(found).decode(), nl=False)
    say_not_read(found)
    say(f"{len(found.brokers)} brokers, {len(found.topics)} topics, {len(found.groups)} groups")
