"""The registry of the doctor's checks. Each is a function of the evidence; here is its text for commands and pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final, TypeAlias

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


Look: TypeAlias = Callable[[Evidence], Iterator[CheckResult]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check, with its page. It decorates the function that makes it, which registers the check."""

    id: str
    severity: Severity
    title: str
    _: KW_ONLY
    reads: Set[Part]
    why: str
    fix: str
    look: Look = lambda _: iter(())
    samples: int = 1
    """How many samples of the facts it needs."""
    needs_app: bool = False
    needs_declared: bool = False
    """Whether it compares the cluster with the files of `ottla apply`."""
    covered_by: Collection[str] = ()
    """Checks that find the cause of this check's findings, with its fix. A finding whose cause one of them reports is
    left out."""

    def __call__(self, look: Look) -> Look:
        if self.id in CHECKS:
            raise ConfigError(f"check {self.id} is registered twice")
        CHECKS[self.id] = replace(self, look=look)
        return look


CHECKS: Final[dict[str, Check]] = {}
