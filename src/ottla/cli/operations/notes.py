"""Notes of a command beside its results: facts that could not be read, and waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.cli.shared.output import warn
from ottla.cli.shared.progress import ProgressLine
from ottla.cli.shared.visible import visible

if TYPE_CHECKING:
    from ottla.admin import ClusterFacts

_SHOWN = 3
_TICK_S = 0.2


def say_not_read(facts: ClusterFacts) -> None:
    """Print to stderr which results are missing and why, each reason once."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in facts.not_read:
        by_reason.setdefault((each.part, each.why), []).append(each.subject)
    for (part, reason), subjects in list(by_reason.items())[:_SHOWN]:
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        warn(f"not read: {part} of {visible(subjects[0])}{more}: {visible(reason)}")
    if len(by_reason) > _SHOWN:
        warn(f"not read: {len(by_reason) - _SHOWN} more parts")


def wait(seconds: float, what: str) -> None:
    """Let time pass between two samples; a person sees how much is left."""
    until = time.monotonic() + seconds
    with ProgressLine(f"{what}, seconds", total=max(1, round(seconds))) as progress:
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(_TICK_S, left))
            passed = int(seconds - max(0.0, until - time.monotonic()))
            progress.advance(passed - progress.done)
