"""`--matching REGEX`: a change of many topics or groups, which are shown before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def takes_matching(what: str) -> Callable[[F], F]:
    """Add `--matching REGEX`, instead of names. `what` they are, as `topics`."""
    return click.option(
        "--matching",
        metavar="REGEX",
        help=f"All {what} whose whole name matches this regular expression (RE2), instead of names.",
    )
