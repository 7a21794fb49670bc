"""`--matching REGEX`: a change of many topics or groups, which are shown before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])


def check_names(names: Sequence[str], matching: str | None) -> None:
    """Raise InputError unless either names of topics or a pattern are given."""
    if (matching is None) is not bool(names):
        raise InputError("found " + ("both" if names else "neither") + ", wanted names of topics or --matching")


def matching_topics(admin: Admin, pattern: str) -> list[str]:
    """Return the names of the topics that match. Internal topics match no pattern."""
    from ottla.browse.matching_names import matching_names

    there = (topic.name for topic in admin.list_topics() if not topic.name.startswith("__"))
    return matching_names(there, pattern, what="topics")


def takes_matching(what: str) -> Callable[[F], F]:
    """Add `--matching REGEX`, instead of names. `what` they are, as `topics`."""
    return click.option(
        "--matching",
        metavar="REGEX",
        help=f"All {what} whose whole name matches this regular expression (RE2), instead of names.",
    )
