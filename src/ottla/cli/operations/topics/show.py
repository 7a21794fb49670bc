"""`ottla topics list` and `show`: they request only the facts that they print."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.human_amounts import bytes_text
from ottla.browse.topic_items import group_items, partition_item, setting_items, topic_detail, topic_item
from ottla.cli.operations.notes import say_not_read
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.output import Column, Format, Output, prints, unknown_or
from ottla.cli.shared.parameter_types import Seconds

if TYPE_CHECKING:
    from ottla.admin import Admin, ClusterFacts
    from ottla.config import Settings

_SORTS = ("name", "partitions", "records", "bytes", "rate")


@click.command("list")
@click.argument("pattern", required=False, shell_complete=complete_topics)
@reaches_a_cluster
@prints
@click.option("--internal", is_flag=True, help="Also internal topics of Kafka, as __consumer_offsets.")
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="name",
    show_default=True,
    help="Largest first. records, bytes (of all replicas) and rate (bytes per second) add their column.",
)
@click.option(
    "--over",
    "seconds",
    type=Seconds(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="With --sort rate: how long to measure.",
)
def list_topics(kafka: Settings, out: Output, pattern: str | None, internal: bool, sort: str, seconds: float) -> None:
    """List topics: all, or those that match PATTERN, as 'orders*'.

    PROBLEMS says how many partitions have no leader, or fewer replicas in sync than they should.

    \b
    Examples:
      ottla topics list
      ottla topics list 'orders*' --sort bytes
      ottla topics list --format json
    """
    with open_admin(kafka) as admin:
        facts, rates = _read(admin, sort, seconds)
    items = [
        topic_item(facts, topic, sort, rates)
        for topic in facts.topics
        if (internal or not (topic.is_internal or topic.name.startswith("__")))
        and (pattern is None or fnmatchcase(topic.name, pattern))
    ]
    items.sort(key=lambda item: item["topic"])
    columns: list[Column | str] = ["topic", "partitions", "replicas"]
    if sort != "name":
        items.sort(key=lambda item: -1 if item[_FIELD[sort]] is None else item[_FIELD[sort]], reverse=True)
    if sort in ("records", "bytes", "rate"):
        columns.append(Column(_FIELD[sort], text=None if sort == "records" else bytes_text))
    columns.append("problems")
    out.items("topics.list/1", columns, items, empty="no topics")
    say_not_read(facts)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@reaches_a_cluster
@prints
@click.option(
    "--partitions", "with_partitions", is_flag=True, help="Show leader, replicas, offsets and bytes of each partition."
)
@click.option("--settings", "all_settings", is_flag=True, help="Show all settings, not only those set on the topic.")
@click.option("--groups", "with_groups", is_flag=True, help="Show the groups that read it, and their lag.")
def show(
    topic: str, kafka: Settings, out: Output, with_partitions: bool, all_settings: bool, with_groups: bool
) -> None:
    """Show TOPIC: its size, its settings, its partitions and who reads it.

    \b
    Examples:
      ottla topics show orders
      ottla topics show orders --partitions
      ottla topics show orders --groups --format json
    """
    from ottla.admin import Part

    with open_admin(kafka) as admin:
        (found,) = admin.describe_topics(topic)
        facts = admin.facts({Part.OFFSETS, Part.LOG_DIRS}, topics=[topic])
        settings = (
            {} if any(each.part == Part.TOPIC_SETTINGS for each in facts.not_read) else setting_items(admin, topic)
        )
        groups = group_items(admin.group_lag(), topic) if with_groups else None
    fact = facts.by_topic.get(topic, found)
    chosen = {name: each for name, each in settings.items() if all_settings or each["source"] == "DYNAMIC_TOPIC_CONFIG"}
    item = topic_detail(facts, fact, settings)
    partitions = [partition_item(facts, topic, each) for each in fact.partitions]
    if out.format is Format.JSON:
        more: dict[str, Any] = {"settings": chosen, "partition_list": partitions}
        out.one("topics.show/1", item | more | ({} if groups is None else {"groups": groups}))
    else:
        _print(out, item, chosen, partitions if with_partitions else None, groups)
    say_not_read(facts)


_FIELD = {"partitions": "partitions", "records": "records", "bytes": "bytes", "rate": "bytes_per_second"}


def _read(admin: Admin, sort: str, seconds: float) -> tuple[ClusterFacts, dict[str, float] | None]:
    from ottla.admin import Part, rates_between

    parts = {
        "records": {Part.OFFSETS},
        "bytes": {Part.TOPICS, Part.LOG_DIRS},
        "rate": {Part.OFFSETS, Part.LOG_DIRS},
    }.get(sort, {Part.TOPICS})
    facts = admin.facts(parts)
    if sort != "rate":
        return facts, None
    from ottla.cli.operations.notes import wait

    before = facts
    wait(seconds, "measuring")
    facts = admin.facts(parts)
    rates: dict[str, float] = {}
    for place, rate in rates_between(before, facts).bytes_in.items():
        rates[place.topic] = rates.get(place.topic, 0.0) + rate
    return facts, rates


def _print(
    out: Output,
    item: dict[str, Any],
    settings: dict[str, dict[str, Any]],
    partitions: list[dict[str, Any]] | None,
    groups: list[dict[str, Any]] | None,
) -> None:
    """Print a topic. The table format has its parts one below the other; the plain format has one line per item of the
    part that was asked for last, or of the topic."""
    is_table = out.format is Format.TABLE
    if is_table or (partitions is None and groups is None):
        texts = (
            {name: bytes_text(item[name]) or None for name in ("bytes", "retention_bytes_limit")} if is_table else {}
        )
        plain_settings = {name: each["value"] for name, each in settings.items()}
        out.one("topics.show/1", {**item, **texts, **plain_settings})
    if partitions is not None:
        _gap(is_table)
        leader = Column("leader", text=lambda found: "none" if found is None else str(found))
        offsets = ("first_offset", "end_offset", Column("bytes", text=bytes_text))
        out.items("topics.partitions/1", ("partition", leader, "replicas", "in_sync", *offsets), partitions)
    if groups is not None:
        _gap(is_table)
        columns = ("group", "state", Column("lag", text=unknown_or))
        out.items("topics.groups/1", columns, groups, empty="no group has committed for it")


def _gap(is_table: bool) -> None:
    if is_table:
        click.echo()
