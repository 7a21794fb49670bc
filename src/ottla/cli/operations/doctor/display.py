"""A report of the doctor on the terminal, for a pipe, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ottla.browse.doctor_items import finding_item, finding_items, report_fields
from ottla.cli.shared.output import Format, Output, say, warn
from ottla.cli.shared.visible import visible

if TYPE_CHECKING:
    from ottla.admin import ClusterFacts
    from ottla.admin.doctor import Finding, Report

_COLOURS: Final = {"error": "red", "warning": "yellow", "note": "blue"}
_FOLDED_FROM: Final = 3
"""Findings of one check that a person is shown; a pipe and JSON have all of them."""

_COLUMNS: Final = ("severity", "id", "subject", "message", "fix")


def print_report(out: Output, report: Report, facts: ClusterFacts) -> None:
    """Print the findings to stdout, and what was accepted and not checked to stderr."""
    if out.format is Format.JSON:
        out.items("doctor/1", _COLUMNS, finding_items(report), **report_fields(report, facts))
    elif out.format is Format.PLAIN:
        out.items("doctor/1", _COLUMNS, [finding_item(each) for each in report.findings], empty=_nothing(report))
    else:
        _print_folded(report.findings, empty=_nothing(report))
    _say_rest(report)


def _nothing(report: Report) -> str:
    """Return the sentence for a report without findings. Parts that could not be read are named: they are no good
    result."""
    refused = {each.id for each in report.not_checked} & set(report.checked)
    if not refused:
        return "nothing found"
    return f"nothing found by {len(set(report.checked) - refused)} checks; {len(refused)} could not see all (below)"


def _print_folded(findings: tuple[Finding, ...], *, empty: str) -> None:
    by_id: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        by_id.setdefault((each.id, each.severity), []).append(each)
    for (id, severity), found in by_id.items():
        label = click.style(f"{severity:<7} {id}", fg=_COLOURS[severity])
        for each in found[:_FOLDED_FROM]:
            click.echo(f"{label}  {visible(each.message)}\n               fix: {visible(each.fix)}")
        if len(found) > _FOLDED_FROM:
            click.echo(f"{label}  and {len(found) - _FOLDED_FROM} more: --only {id} --format plain")
    if not findings:
        say(empty)


def _say_rest(report: Report) -> None:
    """Print what was accepted and what was not checked, one line per reason."""
    if report.accepted:
        say(f"{len(report.accepted)} accepted by the baseline")
    by_reason: dict[str, list[str]] = {}
    for each in report.not_checked:
        by_reason.setdefault(each.reason, []).append(each.id)
    for reason, ids in by_reason.items():
        warn(f"not checked: {', '.join(ids)}: {visible(reason)}")
