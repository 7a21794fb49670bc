"""`ottla topics create`, `add-partitions` and `set-replicas`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.browse.human_amounts import parse_settings
from ottla.cli.shared.cluster_options import chosen_cluster, open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.outcome import changing, fail
from ottla.cli.shared.output import Output, prints, say
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import TopicInfo, TopicSpec
    from ottla.config import Settings


@click.command()
@click.argument("words", metavar="TOPIC... [NAME=VALUE...]", nargs=-1, required=True)
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="Number of partitions; the cluster's default if left out."
)
@click.option(
    "-r", "--replication-factor", type=click.IntRange(1), help="Replication factor; the cluster's default if left out."
)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until every partition has a leader.")
@reaches_a_cluster
@prints
@changes
def create(
    words: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    wait: bool,
    kafka: Settings,
    out: Output,
    consent: Consent,
) -> None:
    """Create topics with settings, as retention.ms=7d.

    Existing topics are not changed. The exit code is 1 if one differs from these options.

    \b
    Examples:
      ottla topics create invoices
      ottla topics create invoices payments -p 6 -r 1 retention.ms=7d max.message.bytes=2MiB
      ottla topics create invoices --partitions 6 --dry-run
    """
    from ottla.admin import Part, TopicSpec
    from ottla.records import topic_problem

    names = list(dict.fromkeys(word for word in words if "=" not in word))
    config = parse_settings([word for word in words if "=" in word], example="retention.ms=7d")
    if not names:
        raise InputError("found only settings, wanted the name of a topic as well")
    for name in names:
        problem = topic_problem(name)
        if problem is not None:
            raise InputError(problem)
    spec = TopicSpec(partitions=partitions, replication_factor=replication_factor, config=config)
    with open_admin(kafka) as admin:
        there = admin.facts({Part.TOPICS, Part.TOPIC_SETTINGS}, topics=names, topic_settings=list(config) or None)
        existing = there.by_topic
        new = [name for name in names if name not in existing]
        if new and _asks_for_all():
            consent.agree(f"Create {', '.join(new)}?")
        with changing():
            created = admin.create_topics(dict.fromkeys(new, spec), dry_run=consent.is_dry_run, wait=wait)
    made = "would be created" if consent.is_dry_run else "created"
    items = [
        _created_item(name, made, *created[name]) if name in created else _existing_item(existing[name], spec)
        for name in names
    ]
    out.items("topics.create/1", _CREATED, items)
    if any(item["differs"] for item in items):
        fail()


@click.command("add-partitions")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("total", type=click.IntRange(1))
@reaches_a_cluster
@prints
@changes
def add_partitions(topic: str, total: int, kafka: Settings, out: Output, consent: Consent) -> None:
    """Add partitions to TOPIC, to TOTAL in all. They cannot be removed again.

    From then on records of a key may go to another partition, out of order with earlier ones.

    \b
    Examples:
      ottla topics add-partitions orders 12 --dry-run
      ottla topics add-partitions orders 12 --yes
    """
    with open_admin(kafka) as admin:
        (fact,) = admin.describe_topics(topic, parts=())
        before = len(fact.partitions)
        items = []
        if total != before:
            admin.add_partitions(topic, total, dry_run=True)
            items = [{"topic": topic, "old": before, "new": total}]
        columns = ("topic", "old", "new")
        empty = f"{topic} has {before} partitions already; nothing to change"
        out.items("topics.add-partitions/1", columns, items, empty=empty)
        if not items:
            return
        say("from now on records of a key may go to another partition, out of order with earlier ones")
        if not consent.agree(f"Add {total - before} partitions to {topic}?"):
            return
        with changing():
            admin.add_partitions(topic, total)
    say(f"{topic} has {total} partitions")


@click.command("set-replicas")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("factor", type=click.IntRange(1))
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all new replicas are in sync.")
@reaches_a_cluster
@prints
@changes
def set_replicas(topic: str, factor: int, wait: bool, kafka: Settings, out: Output, consent: Consent) -> None:
    """Set the number of replicas of TOPIC.

    Those that stay do not move. New ones go to brokers with the fewest replicas, in other racks first.

    \b
    Examples:
      ottla topics set-replicas orders 1 --dry-run
      ottla topics set-replicas orders 1 --yes
    """
    with open_admin(kafka) as admin:
        moves = admin.plan_replicas(topic, factor)
        items = [{"partition": each.partition, "old": list(each.old), "new": list(each.new)} for each in moves]
        columns = ("partition", "old", "new")
        out.items("topics.set-replicas/1", columns, items, empty=f"{topic} has {factor} replicas; nothing to change")
        if not moves or not consent.agree(f"Change the replicas of {len(moves)} partitions of {topic}?"):
            return
        with changing():
            admin.alter_replicas(moves, wait=wait)
    say(f"{topic} has {factor} replicas" if wait else f"{topic}: begun")


def _asks_for_all() -> bool:
    """Return whether the named cluster wants its name typed before anything changes."""
    cluster = chosen_cluster()
    return cluster is not None and cluster.confirm


_CREATED: Final = ("topic", "result", "partitions", "replicas", "differs")


def _created_item(name: str, result: str, partitions: int, replicas: int) -> dict[str, Any]:
    return {"topic": name, "result": result, "partitions": partitions, "replicas": replicas, "differs": None}


def _existing_item(fact: TopicInfo, spec: TopicSpec) -> dict[str, Any]:
    """Return an item for a topic that stays unchanged; `differs` lists its differences from the request."""
    return {
        "topic": fact.name,
        "result": "exists",
        "partitions": len(fact.partitions),
        "replicas": fact.replication_factor,
        "differs": _otherwise(fact, spec) or None,
    }


def _otherwise(fact: TopicInfo, spec: TopicSpec) -> str:
    """Return how a topic differs from the request."""
    found: Sequence[tuple[str, object, object]] = (
        ("partitions", len(fact.partitions), spec.partitions),
        ("replicas", fact.replication_factor, spec.replication_factor),
        *(
            (name, setting.value, wanted)
            for name, wanted in spec.config_texts.items()
            if (setting := fact.settings.get(name)) is not None
        ),
    )
    return ", ".join(
        f"with {there} {name} and not {wanted}" if isinstance(there, int) else f"with {name}={there} and not {wanted}"
        for name, there, wanted in found
        if wanted is not None and wanted != there
    )
