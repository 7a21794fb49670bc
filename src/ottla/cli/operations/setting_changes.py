"""Settings before and after: what `set` and `unset` show before they ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.shared.output import Output

if TYPE_CHECKING:
    from ottla.admin import SettingChange

_COLUMNS = ("setting", "old", "old_source", "new", "new_source")


def show_changes(out: Output, schema: str, planned: Sequence[SettingChange]) -> bool:
    """Print the settings that would change. Returns False if none would."""
    items = [_item(each) for each in planned if each.is_change]
    out.items(schema, _COLUMNS, items, empty="nothing to change")
    return bool(items)


def changes_of_many(out: Output, schema: str, planned: Mapping[str, Sequence[SettingChange]]) -> bool:
    """Print the settings that would change of several topics. Returns False if none would."""
    items = [{"topic": topic, **_item(each)} for topic, found in planned.items() for each in found if each.is_change]
    out.items(schema, ("topic", *_COLUMNS), items, empty=f"nothing to change in {len(planned)} topics")
    return bool(items)


def _item(change: SettingChange) -> dict[str, str | None]:
    return {
        "setting": change.name,
        "old": change.old,
        "old_source": change.old_source,
        "new": change.new,
        "new_source": change.new_source,
    }
