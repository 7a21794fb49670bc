"""`ottla store-offsets`: the offsets that a group keeps in its own database (`offsets=` of a handler)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ottla.browse.topic_partitions import parse_topics
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.cli.shared.stores import names_a_store, reaching, shown_store, store_of
from ottla.errors import InputError
from ottla.records import TopicPartition

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.config import Settings
    from ottla.stores.sql_sessions import SqlSession

_COLUMNS = ("topic", "partition", "next", "lag", "epoch", "member", "updated_at")
_RESET = ("topic", "partition", "old", "new")


@click.group(cls=CommandGroup)
def store_offsets() -> None:
    """Show and set offsets that a group keeps in its own database.

    \b
    Examples:
      ottla store-offsets show billing --store postgresql://db/billing
      ottla store-offsets reset billing --store billing.db --topic orders:0 --to earliest --dry-run
    """


@store_offsets.command()
@click.argument("group", shell_complete=complete_groups)
@names_a_store
@reaches_a_cluster
@prints
def show(group: str, store: str, kafka: Settings, out: Output) -> None:
    """Show the offset of each partition of GROUP in its database, with lag and owner.

    \b
    Example:
      ottla store-offsets show billing --store postgresql://db/billing
    """
    with _session(store) as session:
        rows = session.list_offsets(group)
    with open_admin(kafka) as admin:
        ends = {topic: admin.records_before(topic, "latest") for topic in sorted({row[0] for row in rows})}
    items = []
    for topic, partition, next_offset, epoch, member, updated_at in rows:
        end = ends[topic].get(TopicPartition(topic, partition), (0, None))[1]
        lag = None if next_offset is None or end is None else end - next_offset
        items.append(
            {
                "topic": topic,
                "partition": partition,
                "next": next_offset,
                "lag": lag,
                "epoch": epoch,
                "member": member,
                "updated_at": updated_at,
            }
        )
    out.items("offsets/1", _COLUMNS, iter(items))
    if not items:
        say(f"group {group!r} keeps no offsets in {shown_store(store)}")


@store_offsets.command()
@click.argument("group", shell_complete=complete_groups)
@names_a_store
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:P,P-P]",
    shell_complete=complete_topics,
    help="Only this topic, or these partitions; may be repeated.",
)
@click.option("--to", "to", required=True, metavar="WHERE", help="earliest, latest, a time (-2h) or an offset.")
@reaches_a_cluster
@prints
@changes
def reset(
    group: str, store: str, topics: tuple[str, ...], to: str, kafka: Settings, out: Output, consent: Consent
) -> None:
    """Set the offsets of GROUP in its database. A running member is fenced, and continues there.

    \b
    Example:
      ottla store-offsets reset billing --store billing.db --topic orders:0 --to earliest --dry-run
    """
    with open_admin(kafka) as admin:
        wanted = _wanted(admin, topics, to)
    with _session(store) as session:
        now = {TopicPartition(row[0], row[1]): row[2] for row in session.list_offsets(group)}
        missing = [str(name) for name in wanted if name not in now]
        if missing:
            raise InputError(f"group {group!r} keeps no offset of {', '.join(missing)} in {shown_store(store)}")
        items = [
            {"topic": name.topic, "partition": name.partition, "old": now[name], "new": offset}
            for name, offset in wanted.items()
        ]
        out.items("offsets.reset/1", _RESET, items, group=group)
        count = "1 offset" if len(wanted) == 1 else f"{len(wanted)} offsets"
        if not consent.agree(f"Set {count} of group {group!r}?"):
            return
        with changing():
            for name, offset in wanted.items():
                session.reset_offset(group, name, offset)
    say(f"{group}: {count} set")


def _wanted(admin: Admin, topics: tuple[str, ...], to: str) -> Mapping[TopicPartition, int]:
    wanted: dict[TopicPartition, int] = {}
    for topic, partitions in parse_topics(topics).items():
        is_plain = to in ("earliest", "latest") or re.fullmatch(r"\d{1,19}", to) is not None
        ranges = admin.records_before(topic, "latest" if is_plain else to, partitions=partitions)
        for name, (start, end) in ranges.items():
            if to == "earliest":
                wanted[name] = start
            elif to.isdigit():
                if not start <= int(to) <= end:
                    raise InputError(f"--to: found {to}, wanted {start} to {end}: the log of {name}")
                wanted[name] = int(to)
            else:
                wanted[name] = end
    return wanted


@contextmanager
def _session(store: str) -> Iterator[SqlSession]:
    """Open a session of the store that `--store` names."""
    database = store_of(store)
    with reaching(database):
        session = database.session()
        try:
            yield session
        finally:
            session.close()
