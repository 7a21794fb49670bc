"""The doctor: checks of a cluster, and of a service against its cluster. Pure functions of facts.

report = examine(Evidence(facts=admin.facts()))
for finding in report.findings:
    print(finding.id, finding.message, finding.fix)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.admin.doctor.app_checks import declaration_of as declaration_of
    from ottla.admin.doctor.baseline import Baseline as Baseline
    from ottla.admin.doctor.baseline import dump_baseline as dump_baseline
    from ottla.admin.doctor.baseline import load_baseline as load_baseline
    from ottla.admin.doctor.baseline import without_accepted as without_accepted
    from ottla.admin.doctor.check_registry import Check as Check
    from ottla.admin.doctor.examination import all_checks as all_checks
    from ottla.admin.doctor.examination import chosen as chosen
    from ottla.admin.doctor.examination import examine as examine
    from ottla.admin.doctor.finding import AppDeclaration as AppDeclaration
    from ottla.admin.doctor.finding import AppTopic as AppTopic
    from ottla.admin.doctor.finding import Evidence as Evidence
    from ottla.admin.doctor.finding import Finding as Finding
    from ottla.admin.doctor.finding import Limits as Limits
    from ottla.admin.doctor.finding import NotChecked as NotChecked
    from ottla.admin.doctor.finding import Report as Report
    from ottla.admin.doctor.finding import Severity as Severity

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.admin.doctor.app_checks": ["declaration_of"],
        "ottla.admin.doctor.baseline": ["Baseline", "dump_baseline", "load_baseline", "without_accepted"],
        "ottla.admin.doctor.check_registry": ["Check"],
        "ottla.admin.doctor.examination": ["all_checks", "chosen", "examine"],
        "ottla.admin.doctor.finding": [
            "AppDeclaration",
            "AppTopic",
            "Evidence",
            "Finding",
            "Limits",
            "NotChecked",
            "Report",
            "Severity",
        ],
    },
)
