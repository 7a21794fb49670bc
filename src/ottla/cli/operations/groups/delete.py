"""`ottla groups delete` and `delete-offsets`: the offsets are kept in a file that `restore` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.reset_items import undo_path
from ottla.browse.topic_partitions import parse_topics
from ottla.cli.operations.groups.resets import count_of_offsets, writes_undo
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.outcome import changing, restorable
from ottla.cli.shared.output import Output, prints, say
from ottla.cli.shared.visible import visible
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin, GroupInfo
    from ottla.config import Settings
    from ottla.records import TopicPartition

_NO_UNDO = click.option("--no-undo", is_flag=True, help="Write no undo file.")


@click.command()
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@_NO_UNDO
@reaches_a_cluster
@prints
@changes
def delete(groups: tuple[str, ...], no_undo: bool, kafka: Settings, out: Output, consent: Consent) -> None:
    """Delete groups and their offsets. They must have no members.

    Their committed offsets are written to a file for `ottla groups restore`.

    \b
    Examples:
      ottla groups delete billing --dry-run
      ottla groups delete billing --yes
    """
    names = list(dict.fromkeys(groups))
    with open_admin(kafka) as admin:
        found = _those_there(admin, names)
        items = [_item(group) for group in found]
        columns = ("group", "type", "state", "members", "committed")
        out.items("groups.delete/1", columns, items)
        typed = names[0] if len(names) == 1 else f"{len(names)} groups"
        if not consent.agree(f"Delete {typed} with all committed offsets?", name=typed):
            return
        kept = [] if no_undo else [_keep(admin, group.group_id, None) for group in found if group.offsets]
        with changing(), restorable(*kept):
            admin.delete_groups(*names)
    say(f"deleted: {', '.join(map(visible, names))}")


@click.command()
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:P,P-P]",
    shell_complete=complete_topics,
    help="A topic, or partitions of it; may be repeated.",
)
@writes_undo
@_NO_UNDO
@reaches_a_cluster
@prints
@changes
def delete_offsets(
    group: str,
    topics: tuple[str, ...],
    undo_file: Path | None,
    no_undo: bool,
    kafka: Settings,
    out: Output,
    consent: Consent,
) -> None:
    """Delete the offsets of GROUP for topics that it no longer reads, which count as lag otherwise.

    A share group is refused: Kafka deletes its offsets by whole topics only.

    \b
    Examples:
      ottla groups delete-offsets billing --topic orders --dry-run
      ottla groups delete-offsets billing --topic orders:0 --yes
    """
    from ottla.admin.operations.consumer_groups import NOT_FORGOTTEN, refuse_share_groups

    wanted = parse_topics(topics)
    with open_admin(kafka) as admin:
        (fact,) = admin.describe_groups(group)
        refuse_share_groups(NOT_FORGOTTEN, fact)
        places = _committed(fact, wanted)
        items = [{"topic": place.topic, "partition": place.partition, "committed": at} for place, at in places.items()]
        columns = ("topic", "partition", "committed")
        out.items("groups.forget/1", columns, items, empty="the group has no committed offset for it")
        count = count_of_offsets(len(places))
        if not places or not consent.agree(f"Delete {count} of group {group}?"):
            return
        kept = [] if no_undo else [_keep(admin, group, undo_file)]
        with changing(), restorable(*kept):
            admin.forget_offsets(group, *places)
    say(f"{group}: {count} deleted")


def _those_there(admin: Admin, names: list[str]) -> tuple[GroupInfo, ...]:
    """Return the groups that exist; their deletion says which do not."""
    from ottla.admin import Part, UnknownGroup

    facts = admin.facts({Part.GROUPS, Part.GROUP_MEMBERS, Part.GROUP_OFFSETS}, groups=names)
    if not facts.groups and not facts.not_read:
        raise UnknownGroup(f"{', '.join(names)}: the cluster has no such group")
    return facts.groups


def _item(group: GroupInfo) -> dict[str, Any]:
    topics: dict[str, int] = {}
    for each in group.offsets or ():
        topics[each.topic] = topics.get(each.topic, 0) + 1
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": None if group.members is None else len(group.members),
        "committed": [f"{topic} ({count} partitions)" for topic, count in sorted(topics.items())],
    }


def _committed(fact: GroupInfo, wanted: dict[str, Any]) -> dict[TopicPartition, int]:
    from ottla.records import TopicPartition

    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in fact.offsets or ()
        if each.topic in wanted and (wanted[each.topic] is None or each.partition in wanted[each.topic])
    }


def _keep(admin: Admin, group: str, given: Path | None) -> Path:
    """Write what the group has committed to a file, without topics that are gone, and return its path."""
    from ottla.admin.facts.facts_file import write_whole
    from ottla.admin.operations.offset_resets import dump_undo
    from ottla.errors import OttlaError

    try:
        plan = admin.plan_copy(group, group)
    except OttlaError as error:
        raise InputError(
            f"what {group} has committed cannot be saved: {error}; --no-undo continues without it"
        ) from error
    path = undo_path(given, group, plan.at_ms)
    write_whole(path, dump_undo(plan))
    return path
