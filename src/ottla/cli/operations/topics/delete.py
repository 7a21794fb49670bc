"""`ottla topics delete` and `delete-records`: what will be gone is shown before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.browse.doomed_topics import doomed_item, read_doomed
from ottla.browse.human_amounts import bytes_text
from ottla.browse.topic_partitions import parse_place
from ottla.cli.operations.notes import say_not_read
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.matching import check_names, matching_topics, takes_matching
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Column, Output, prints, say
from ottla.errors import InputError, UnknownTopic

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.config import Settings
    from ottla.records import TopicPartition


@click.command()
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@takes_matching("topics")
@click.option("--internal", is_flag=True, help="Also internal topics of Kafka, whose names begin with __.")
@reaches_a_cluster
@prints
@changes
def delete(
    topics: tuple[str, ...], matching: str | None, internal: bool, kafka: Settings, out: Output, consent: Consent
) -> None:
    """Delete topics with all their records.

    Shows the records, bytes and groups of each, and asks for its name, or for how many there are. A pattern matches no
    internal topic.

    \b
    Examples:
      ottla topics delete orders --dry-run
      ottla topics delete --matching 'ord.*' --dry-run
      ottla topics delete orders --yes
    """
    names = list(dict.fromkeys(topics))
    check_names(names, matching)
    for name in names:
        if name.startswith("__") and not internal:
            raise InputError(f"{name} is an internal topic of Kafka: --internal allows it")
    with open_admin(kafka) as admin:
        if matching is not None:
            names = matching_topics(admin, matching)
        facts = read_doomed(admin, names)
        unknown = [name for name in names if name not in facts.by_topic]
        if len(unknown) == len(names):
            raise UnknownTopic(f"{', '.join(unknown)}: the cluster has no such topic")
        columns = ("topic", "partitions", "records", Column("bytes", text=bytes_text), "groups")
        out.items("topics.delete/1", columns, [doomed_item(facts, name) for name in names if name in facts.by_topic])
        say_not_read(facts)
        typed = names[0] if len(names) == 1 else f"{len(names)} topics"
        if not consent.agree(f"Delete {typed} with all records?", name=typed):
            return
        with changing():
            admin.delete_topics(*names)
    say(f"deleted: {', '.join(names)}")


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--before",
    "positions",
    multiple=True,
    required=True,
    metavar="TIME|latest|P:O",
    help="A time (2026-11-22T10:00, -2h), latest for all records, or PARTITION:OFFSET, which may be repeated.",
)
@reaches_a_cluster
@prints
@changes
def delete_records(topic: str, positions: tuple[str, ...], kafka: Settings, out: Output, consent: Consent) -> None:
    """Delete the oldest records of TOPIC: all before a time or an offset. A time without a zone is UTC.

    \b
    Examples:
      ottla topics delete-records orders --before -7d --dry-run
      ottla topics delete-records orders --before 0:1 --before 1:0 --yes
      ottla topics delete-records orders --before latest --yes
    """
    with open_admin(kafka) as admin:
        before = _before(admin, topic, positions)
        items = [
            {
                "partition": place.partition,
                "first_offset": first,
                "new_first_offset": new,
                "deleted": max(0, new - first),
            }
            for place, (first, new) in sorted(before.items())
        ]
        columns = ("partition", "first_offset", "new_first_offset", "deleted")
        out.items("topics.trim/1", columns, items)
        count = sum(item["deleted"] for item in items)
        if not count:
            say("nothing to delete")
            return
        if not consent.agree(f"Delete up to {count:,} records of {topic}?", name=topic):
            return
        with changing():
            admin.delete_records({place: new for place, (first, new) in before.items() if new > first})
    say(f"{topic}: {count:,} records deleted at most; offsets may have gaps")


def _before(admin: Admin, topic: str, positions: tuple[str, ...]) -> dict[TopicPartition, tuple[int, int]]:
    """Return (first offset, offset before which records go) of each partition that is concerned."""
    from ottla.records import TopicPartition

    places = [parse_place(each) for each in positions]
    if len(positions) == 1 and places[0] is None:
        return admin.records_before(topic, positions[0])
    wanted: dict[int, int] = {}
    for text, place in zip(positions, places, strict=True):
        if place is None or place[0] in wanted:
            raise InputError(f"--before: found {text!r} beside others, wanted one time, or P:O of different partitions")
        wanted[place[0]] = place[1]
    ends = admin.records_before(topic, "latest", partitions=list(wanted))
    found = {}
    for partition, offset in wanted.items():
        first, end = ends[TopicPartition(topic, partition)]
        if offset > end:
            raise InputError(f"{topic}-{partition}: found offset {offset}, wanted at most {end}, the end of the log")
        found[TopicPartition(topic, partition)] = (first, max(first, offset))
    return found
