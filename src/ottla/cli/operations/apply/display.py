"""A plan of `ottla apply` on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.browse.apply_drift import change_item
from ottla.browse.doomed_topics import doomed_item, read_doomed
from ottla.cli.operations.notes import say_not_read
from ottla.cli.shared.output import Output, warn
from ottla.cli.shared.visible import visible

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.declared.apply_plan import ApplyPlan

_COLUMNS: Final = ("kind", "subject", "name", "old", "new", "note")
NOTHING: Final = "nothing to change: the cluster is as declared"


def show_plan(out: Output, schema: str, admin: Admin, plan: ApplyPlan, **fields: Any) -> None:
    """Print the changes. Of topics that are deleted it shows what is deleted with them, as `ottla topics delete`."""
    doomed: dict[str, dict[str, Any]] = {}
    if plan.deleted_topics:
        facts = read_doomed(admin, plan.deleted_topics)
        doomed = {name: doomed_item(facts, name) for name in plan.deleted_topics if name in facts.by_topic}
        say_not_read(facts)
    items = [
        change_item(each, doomed.get(each.subject) if each.is_deletion_of_topic else None) for each in plan.changes
    ]
    out.items(schema, _COLUMNS, items, empty=NOTHING, cluster=plan.cluster_id, **fields)
    for lost in plan.lost:
        warn(f"not reverted: {visible(lost)}")
