"""Makes the checks that are wanted, and orders what they find."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ottla.admin.doctor import (  # noqa: F401  (each registers its checks)
    access_checks,
    app_checks,
    availability_checks,
    balance_checks,
    consumer_checks,
    drift_checks,
    replication_checks,
    schedule_checks,
    storage_checks,
    traffic_checks,
    upkeep_checks,
)
from ottla.admin.doctor.check_registry import CHECKS, Check
from ottla.admin.doctor.finding import Evidence, Finding, NotChecked, Report
from ottla.admin.facts.cluster_facts import Part
from ottla.errors import ConfigError


def all_checks() -> dict[str, Check]:
    """Return every check by its id, in the order of the page."""
    areas = ("REP", "AVL", "STO", "MSG", "BAL", "MOV", "GRP", "TXN", "DLQ", "SCH", "QUO", "SEC", "APP", "DRF")
    return {each: CHECKS[each] for each in sorted(CHECKS, key=lambda each: (areas.index(each[:3]), each))}


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> dict[str, Check]:
    """Return the checks that are wanted. ConfigError for an id that no check has."""
    checks = all_checks()
    for name in (*only, *skip):
        if name not in checks:
            raise ConfigError(f"{name}: no check has this id, wanted one of {', '.join(checks)}")
    return {name: each for name, each in checks.items() if (not only or name in only) and name not in skip}


def examine(evidence: Evidence, *, only: Collection[str] = (), skip: Collection[str] = ()) -> Report:
    """Make the checks that are wanted, the worst findings first. A check that could not be made is in `not_checked`."""
    findings: list[tuple[str, Finding]] = []
    not_checked: list[NotChecked] = []
    made: list[str] = []
    for each in chosen(only, skip).values():
        reason = _why_not(each, evidence)
        if reason is not None:
            not_checked.append(NotChecked(id=each.id, reason=reason))
            continue
        made.append(each.id)
        not_checked += _not_read(each, evidence)
        findings += [
            (
                found.subject if found.cause is None else found.cause,
                Finding(
                    id=each.id,
                    severity=found.severity or each.severity,
                    subject=found.subject,
                    message=found.message,
                    fix=found.fix or each.fix,
                ),
            )
            for found in each.look(evidence)
        ]
    causes = {(found.id, cause) for cause, found in findings}
    checks = all_checks()
    kept = [
        found for cause, found in findings if not any((other, cause) in causes for other in checks[found.id].covered_by)
    ]
    kept.sort(key=lambda finding: finding.severity.rank)
    return Report(findings=tuple(kept), not_checked=tuple(not_checked), checked=tuple(made))


def _why_not(each: Check, evidence: Evidence) -> str | None:
    if each.needs_app and evidence.app is None:
        return "it needs a service's declaration (--app)"
    if each.needs_declared and evidence.drift is None:
        return "it needs files of `ottla apply` (--declared)"
    missing = sorted(each.reads - set(evidence.facts.parts))
    if missing == [Part.COMMIT_TIMES]:
        return "it reads the records of __consumer_offsets (--deep)"
    if missing:
        return f"the facts have no {', '.join(missing)}"
    if len(evidence.earlier) + 1 < each.samples:
        return f"it compares {each.samples} samples of the facts, and there are {len(evidence.earlier) + 1}"
    return None


def _not_read(each: Check, evidence: Evidence) -> Iterator[NotChecked]:
    """Yield what of its facts was refused or not reached. Those of one reason are folded."""
    for reason in evidence.drift_not_read if each.needs_declared else ():
        yield NotChecked(id=each.id, reason=reason)
    by_reason: dict[str, list[str]] = {}
    for missing in evidence.facts.not_read:
        if missing.part in each.reads and not (each.id == "AVL06" and missing.part is Part.REACHED):
            by_reason.setdefault(missing.why, []).append(missing.subject)
    for reason, subjects in by_reason.items():
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        yield NotChecked(id=each.id, reason=f"{subjects[0]}{more}: {reason}")
