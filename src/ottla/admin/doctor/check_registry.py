"""The registry of the doctor's checks. Each is a function of the evidence; here is its text for commands and pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from ottla.admin.doctor.finding import Evidence, Severity
from ottla.admin.facts.cluster_facts import Part
from ottla.errors import ConfigError
from ottla_wire.facts import fact


@fact
class CheckResult:
    """One result of a check. `severity` and `fix` default to the check's own. `cause` names the underlying problem, by
    default the subject: see `Check.covered_by`."""

    subject: str
    message: str
    fix: str | None = None
    severity: Severity | None = None
    cause: str | None = None


@fact
class Check:
    """One check, with its page."""

    id: str
    severity: Severity
    title: str
    reads: frozenset[Part]
    why: str
    fix: str
    look: Callable[[Evidence], Iterator[CheckResult]]
    samples: int = 1
    """How many samples of the facts it needs."""
    needs_app: bool = False
    needs_declared: bool = False
    """Whether it compares the cluster with the files of `ottla apply`."""
    covered_by: tuple[str, ...] = ()
    """Checks that find the cause of this check's findings, with its fix. A finding whose cause one of them reports is
    left out."""


CHECKS: Final[dict[str, Check]] = {}


def check(
    id: str,
    severity: Severity,
    title: str,
    *,
    reads: Collection[Part],
    why: str,
    fix: str,
    samples: int = 1,
    needs_app: bool = False,
    needs_declared: bool = False,
    covered_by: Collection[str] = (),
) -> Callable[[Callable[[Evidence], Iterator[CheckResult]]], Callable[[Evidence], Iterator[CheckResult]]]:
    """Register a check."""

    def register(look: Callable[[Evidence], Iterator[CheckResult]]) -> Callable[[Evidence], Iterator[CheckResult]]:
        if id in CHECKS:
            raise ConfigError(f"check {id} is registered twice")
        CHECKS[id] = Check(
            id=id,
            severity=severity,
            title=title,
            reads=frozenset(reads),
            why=why,
            fix=fix,
            look=look,
            samples=samples,
            needs_app=needs_app,
            needs_declared=needs_declared,
            covered_by=tuple(covered_by),
        )
        return look

    return register
