"""Resets of a group's offsets: the parsed request, the items that show it, and the undo file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.browse.human_amounts import moment
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import ResetPlan


def undo_path(given: Path | None, group: str, at_ms: int, *, folder: Path = Path(), what: str = "offsets") -> Path:
    """Return the file that was asked for, or one in the folder named by the group and the time, that does not exist.
    `what` is in it, of a group or of another thing with a name. Raises InputError if the given file exists."""
    if given is not None:
        if given.exists():
            raise InputError(f"--undo {given}: the file exists; an undo file never overwrites another")
        return given
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", group).strip("-.")[:100] or "group"
    at = re.sub(r"[-:.]", "", moment(at_ms) or "")
    path = folder / f"{name}-{what}-{at}.json"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{what}-{at}-{number}.json"
    return path


def parse_to(text: str) -> str | int:
    """Return an offset as a number; a position as it is."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text


def reset_items(plan: ResetPlan) -> list[dict[str, Any]]:
    """Return an item of `groups.reset/1` for each partition that changes, or for which an offset was requested that it
    does not have."""
    return [
        {
            "topic": move.topic,
            "partition": move.partition,
            "committed": move.committed,
            "new": move.new,
            "records": move.records,
            "note": f"the log has {move.log_start} to {move.log_end}" if move.is_clamped else None,
            "first_offset": move.log_start,
            "end_offset": move.log_end,
        }
        for move in plan.moves
        if move.is_change or move.is_clamped
    ]
