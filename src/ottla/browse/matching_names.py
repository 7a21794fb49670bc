"""Names of topics and groups that match a pattern, for changes to many of them at once."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import InputError
from ottla.patterns import Pattern

OPTION = "--matching"


def matching_names(names: Iterable[str], pattern: str, *, what: str) -> list[str]:
    """Return the names that a regular expression matches whole, sorted. InputError where none does: a pattern with a
    mistake changes nothing, and says so. `what` they are: topics, groups."""
    compiled = Pattern(pattern, name=OPTION)
    found = sorted(name for name in names if compiled.is_whole(name))
    if not found:
        raise InputError(f"{OPTION}: found no {what} whose whole name {pattern!r} matches")
    return found
