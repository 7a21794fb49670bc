"""`ottla groups reset`, `copy` and `restore`: what was committed before is in a file before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.browse.reset_items import parse_to, reset_items, undo_path
from ottla.browse.topic_partitions import parse_topics
from ottla.cli.operations.groups.many_resets import RESET_COLUMNS, reset_many
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.matching import takes_matching
from ottla.cli.shared.outcome import changing, restorable
from ottla.cli.shared.output import Output, prints, say
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin, ResetPlan
    from ottla.config import Settings

F = TypeVar("F", bound=Callable[..., Any])


def writes_undo(command: F) -> F:
    """Add `--undo FILE`: where the offsets go that are committed now."""
    return click.option(
        "--undo",
        "undo_file",
        type=FILE,
        help="The file for the old offsets, for `ottla groups restore`.  [default: ./GROUP-offsets-TIME.json]",
    )(command)


@click.command()
@click.argument("group", required=False, shell_complete=complete_groups)
@takes_matching("groups")
@click.option("--to", metavar="WHERE", help="earliest, latest, a time (2026-11-22T10:00, -2h) or an offset.")
@click.option(
    "--shift", type=int, metavar="RECORDS", help="Move the offsets by this many records; negative to go back."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P-P]",
    shell_complete=complete_topics,
    help="Only this topic, or these partitions; may be repeated. Default: all that the group has committed.",
)
@writes_undo
@reaches_a_cluster
@prints
@changes
def reset(
    group: str | None,
    matching: str | None,
    to: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    undo_file: Path | None,
    kafka: Settings,
    out: Output,
    consent: Consent,
) -> None:
    """Set the offsets of GROUP. It must have no members. A time without a zone is UTC.

    An offset that is not in the log becomes the nearest one, with a note. With --matching all groups are shown before
    any is set, and none is set while one of them has members.

    \b
    Examples:
      ottla groups reset billing --to -2h --dry-run
      ottla groups reset billing --to earliest --topic orders:0,2 --yes
      ottla groups reset --matching 'bil.*' --to -2h --dry-run
      ottla groups reset billing --shift -1 --yes
    """
    if (to is None) == (shift is None):
        raise InputError("found " + ("neither" if to is None else "both") + ", wanted one of --to and --shift")
    if (group is None) is (matching is None):
        raise InputError("found " + ("neither" if group is None else "both") + ", wanted GROUP or --matching")
    if matching is not None and undo_file is not None:
        raise InputError("found --undo and --matching, wanted one of them: each group has an undo file of its own")
    wanted = parse_topics(topics) if topics else None
    at = None if to is None else parse_to(to)
    with open_admin(kafka) as admin:
        if group is not None:
            _carry_out(admin, admin.plan_reset(group, to=at, shift=shift, topics=wanted), out, consent, undo_file)
            return
        names = _matching(admin, str(matching), wanted)
        reset_many(admin, [admin.plan_reset(name, to=at, shift=shift, topics=wanted) for name in names], out, consent)


@click.command()
@click.argument("group", shell_complete=complete_groups)
@click.argument("to", shell_complete=complete_groups)
@writes_undo
@reaches_a_cluster
@prints
@changes
def copy(group: str, to: str, undo_file: Path | None, kafka: Settings, out: Output, consent: Consent) -> None:
    """Copy the offsets of GROUP to group TO, for a service with a new group name.

    \b
    Examples:
      ottla groups copy billing billing-2 --dry-run
      ottla groups copy billing billing-2 --yes
    """
    with open_admin(kafka) as admin:
        _carry_out(admin, admin.plan_copy(group, to), out, consent, undo_file)


@click.command()
@click.argument("file", type=FILE)
@writes_undo
@reaches_a_cluster
@prints
@changes
def restore(file: Path, undo_file: Path | None, kafka: Settings, out: Output, consent: Consent) -> None:
    """Restore the offsets in FILE, which reset, copy, delete or delete-offsets wrote.

    \b
    Examples:
      ottla groups restore billing-offsets.json --dry-run
      ottla groups restore billing-offsets.json --yes
    """
    with open_admin(kafka) as admin:
        _carry_out(admin, admin.plan_restore(file), out, consent, undo_file)


def count_of_offsets(count: int) -> str:
    """Return "1 offset", "2 offsets" and so on."""
    return "1 offset" if count == 1 else f"{count} offsets"


def _matching(admin: Admin, pattern: str, topics: Mapping[str, object] | None) -> list[str]:
    """Return the matching groups that have committed something, of these topics if they are named."""
    from ottla.admin import Part
    from ottla.browse.matching_names import matching_names

    names = matching_names((group.group_id for group in admin.list_groups()), pattern, what="groups")
    facts = admin.facts({Part.GROUPS, Part.GROUP_OFFSETS}, groups=names)
    for each in facts.not_read:
        raise InputError(f"{each.subject}: {each.reason}")
    found = [
        group.group_id
        for group in facts.groups
        if any(topics is None or each.topic in topics for each in group.offsets or ())
    ]
    if not found:
        raise InputError(
            f"--matching: {', '.join(names)}: no committed offsets{'' if topics is None else ' for --topic'}"
        )
    return found


def _carry_out(admin: Admin, plan: ResetPlan, out: Output, consent: Consent, undo_file: Path | None) -> None:
    from ottla.admin.operations.offset_resets import refuse_members

    moves = [move for move in plan.moves if move.is_change]
    out.items("groups.reset/1", RESET_COLUMNS, reset_items(plan), empty="nothing to change", group=plan.group_id)
    if not moves:
        return
    refuse_members(plan.group_id, plan.members)
    count = count_of_offsets(len(moves))
    if not consent.agree(f"Set {count} of group {plan.group_id}?"):
        return
    path = undo_path(undo_file, plan.group_id, plan.at_ms)
    with changing(), restorable(path):
        admin.apply_reset(plan, undo_file=path)
    say(f"{plan.group_id}: {count} set")
