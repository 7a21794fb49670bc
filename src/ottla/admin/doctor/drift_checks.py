"""DRF01: a cluster that is not as its files declare it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import Evidence, Severity
from ottla.admin.facts.cluster_facts import Part

_MOST: Final = 3
"""Changes of one subject that a message names."""


@Check(
    "DRF01",
    Severity.WARNING,
    "The cluster is not as declared",
    reads={Part.TOPICS},
    needs_declared=True,
    why="A setting, right or quota was changed by hand, or a file was changed and not applied. The next `ottla apply`"
    " changes it, whether that is expected or not.",
    fix="ottla apply plan FILE",
)
def has_drifted(seen: Evidence) -> Iterator[CheckResult]:
    by_subject: dict[str, list[str]] = {}
    for change in seen.drift or ():
        what = f"{change.kind} {change.name}" if change.name else str(change.kind)
        old = "none" if change.old is None else change.old
        new = "none" if change.new is None else change.new
        by_subject.setdefault(change.subject, []).append(f"{what} is {old} and is declared as {new}")
    for subject, found in by_subject.items():
        more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
        yield CheckResult(subject=subject, message=f"{subject}: {'; '.join(found[:_MOST])}{more}")
