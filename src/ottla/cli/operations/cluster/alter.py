"""`ottla cluster set`, `unset` and `elect`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.browse.human_amounts import parse_settings
from ottla.cli.operations.cluster.parts import broker_id
from ottla.cli.operations.setting_changes import show_changes
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.errors import InputError, UnknownTopic

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.config import Settings


@click.command("set")
@click.argument("broker", metavar="BROKER|all")
@click.argument("pairs", metavar="NAME=VALUE...", nargs=-1, required=True)
@reaches_a_cluster
@prints
@changes
def set_settings(broker: str, pairs: tuple[str, ...], kafka: Settings, out: Output, consent: Consent) -> None:
    """Set settings of one broker, or of all of them, while they run.

    \b
    Examples:
      ottla cluster set all message.max.bytes=2MiB --dry-run
      ottla cluster set all log.retention.ms=7d --yes
      ottla cluster set 1 message.max.bytes=2MiB --yes
    """
    values = parse_settings(pairs, example="message.max.bytes=2MiB")
    with open_admin(kafka) as admin:
        _change(admin, broker, values, out, consent)


@click.command("unset")
@click.argument("broker", metavar="BROKER|all")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@reaches_a_cluster
@prints
@changes
def unset_settings(broker: str, names: tuple[str, ...], kafka: Settings, out: Output, consent: Consent) -> None:
    """Remove settings of one broker, or of all, that were set at run time.

    \b
    Examples:
      ottla cluster unset all message.max.bytes --dry-run
      ottla cluster unset 1 message.max.bytes --yes
    """
    with open_admin(kafka) as admin:
        _change(admin, broker, dict.fromkeys(names), out, consent)


@click.command()
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@reaches_a_cluster
@prints
@changes
def elect(topics: tuple[str, ...], kafka: Settings, out: Output, consent: Consent) -> None:
    """Elect the preferred replicas, of all partitions or of TOPICS.

    Only partitions whose preferred replica is in sync and does not lead are changed.

    \b
    Examples:
      ottla cluster elect --dry-run
      ottla cluster elect orders --yes
    """
    from ottla.admin import Part
    from ottla.records import TopicPartition

    with open_admin(kafka) as admin:
        facts = admin.facts({Part.TOPICS}, topics=topics or None)
        for name in topics:
            if name not in facts.by_topic:
                raise UnknownTopic(f"{name}: the cluster has no such topic")
        concerned = [
            (TopicPartition(topic.name, each.partition), each)
            for topic in facts.topics
            for each in topic.partitions
            if each.replicas and each.leader != each.replicas[0] and each.replicas[0] in each.in_sync
        ]
        items = [
            {"topic": place.topic, "partition": place.partition, "leader": each.leader, "new": each.replicas[0]}
            for place, each in concerned
        ]
        columns = ("topic", "partition", "leader", "new")
        out.items("cluster.elect/1", columns, items, empty="every preferred replica that is in sync leads")
        if not concerned or not consent.agree(f"Change the leaders of {len(concerned)} partitions?"):
            return
        with changing():
            elected = admin.elect_leaders([place for place, _ in concerned])
    say(f"{len(elected)} leaders changed")


def _change(admin: Admin, broker: str, values: Mapping[str, str | None], out: Output, consent: Consent) -> None:
    number = broker_id(broker)
    _refuse_static(admin, number, values)
    planned = admin.alter_broker_settings(number, values, dry_run=True)
    whose = "all brokers" if number is None else f"broker {number}"
    if not show_changes(out, "cluster.set/1", planned) or not consent.agree(f"Change the settings of {whose}?"):
        return
    with changing():
        admin.alter_broker_settings(number, values)
    say(f"{whose}: changed")


def _refuse_static(admin: Admin, number: int | None, values: Mapping[str, str | None]) -> None:
    """Refuse settings that only a restart changes, and say where to write them."""
    there = {broker.id: broker for broker in admin.facts(()).brokers if not broker.is_fenced}
    if number is not None and number not in there:
        raise InputError(f"found broker {number}, wanted one of {', '.join(map(str, there))}")
    known = admin.broker_settings(min(there) if number is None else number)
    for name, value in values.items():
        setting = known.get(name)
        if setting is not None and setting.is_read_only:
            line = name if value is None else f"{name}={value}"
            raise InputError(
                f"{name} cannot change while a broker runs: write `{line}` in server.properties of "
                f"{'every broker' if number is None else f'broker {number}'}, and restart it"
            )
