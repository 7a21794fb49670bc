"""Resets of several groups at once: all are shown and checked before the first is set, each with its own undo file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.browse.reset_items import reset_items, undo_path
from ottla.cli.shared.consent import Consent
from ottla.cli.shared.outcome import changing, restorable
from ottla.cli.shared.output import Column, Output, none_or, say
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.admin import Admin, ResetPlan

RESET_COLUMNS = (
    "topic",
    "partition",
    Column("committed", text=none_or),
    Column("new", text=none_or),
    Column("records", title="more to read", text=lambda count: "" if count is None else f"{count:+,}"),
    "note",
)


def reset_many(admin: Admin, plans: Sequence[ResetPlan], out: Output, consent: Consent) -> None:
    """Show what would be set, ask, and set the offsets of one group after the other."""
    from ottla.admin.errors import raise_failed
    from ottla.admin.operations.offset_resets import refuse_members

    items = [{"group": plan.group_id, **item} for plan in plans for item in reset_items(plan)]
    out.items(
        "groups.reset/1",
        ("group", *RESET_COLUMNS),
        items,
        empty=f"nothing to change in {len(plans)} groups",
        group=", ".join(plan.group_id for plan in plans),
    )
    changed = [plan for plan in plans if any(move.is_change for move in plan.moves)]
    if not changed:
        return
    for plan in changed:
        refuse_members(plan.group_id, plan.members)
    if not consent.agree(f"Set the offsets of {len(changed)} groups?", name=f"{len(changed)} groups"):
        return
    failed: dict[str, OttlaError] = {}
    with changing():
        for plan in changed:
            path = undo_path(None, plan.group_id, plan.at_ms)
            try:
                with restorable(path):
                    admin.apply_reset(plan, undo_file=path)
            except OttlaError as error:
                failed[plan.group_id] = error
        raise_failed("groups", names=[plan.group_id for plan in changed], failed=failed)
    say(f"{len(changed)} groups: offsets set")
