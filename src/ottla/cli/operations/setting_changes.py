"""Settings before and after: what `set` and `unset` show before they ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.shared.output import Column, Output

if TYPE_CHECKING:
    from ottla.admin import SettingChange

_COLUMNS = (Column("setting"), Column("old"), Column("old_source"), Column("new"), Column("new_source"))


def show_changes(out: Output, schema: str, planned: Sequence[SettingChange]) -> bool:
    """Print the settings that would change. Returns False if none would."""
    items = [
        {
            "setting": each.name,
            "old": each.old,
            "old_source": each.old_source,
            "new": each.new,
            "new_source": each.new_source,
        }
        for each in planned
        if each.is_change
    ]
    out.items(schema, _COLUMNS, items, empty="nothing to change")
    return bool(items)
