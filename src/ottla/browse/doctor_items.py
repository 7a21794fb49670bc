"""The items of `ottla doctor`'s document, made of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.browse.human_amounts import moment

if TYPE_CHECKING:
    from ottla.admin import ClusterFacts
    from ottla.admin.doctor import Finding, Report


def finding_items(report: Report) -> list[dict[str, Any]]:
    """Return the items of `doctor/1`, each with the reason of its check."""
    from ottla.admin.doctor import all_checks

    checks = all_checks()
    return [
        {**finding_item(each), "title": checks[each.id].title, "why": checks[each.id].why} for each in report.findings
    ]


def report_fields(report: Report, facts: ClusterFacts) -> dict[str, Any]:
    """Return the fields of `doctor/1` besides its items."""
    return {
        "cluster_id": facts.cluster_id,
        "at": moment(facts.at_ms),
        "checked": list(report.checked),
        "not_checked": [{"id": each.id, "reason": each.reason} for each in report.not_checked],
        "accepted": [finding_item(each) for each in report.accepted],
    }


def finding_item(each: Finding) -> dict[str, Any]:
    """Return a finding as an item of `doctor/1`, without the reason of its check."""
    return {
        "severity": str(each.severity),
        "id": each.id,
        "subject": each.subject,
        "message": each.message,
        "fix": each.fix,
    }
