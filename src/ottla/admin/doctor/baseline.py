"""Findings that are known: accepted by name, with a reason and the date on which that ends."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Final

from ottla.admin.doctor.finding import Report
from ottla.admin.facts.facts_file import from_json, to_json
from ottla.errors import InputError
from ottla_wire.facts import fact

SCHEMA: Final = "ottla.doctor.baseline/1"


@fact
class Accepted:
    """One finding that is accepted until the end of a day (`2027-01-31`, UTC). `subject` "*" accepts all of an id."""

    id: str
    subject: str
    reason: str
    until: str


@fact
class Baseline:
    """All that is accepted."""

    accepted: tuple[Accepted, ...]


def load_baseline(data: bytes, *, source: str) -> Baseline:
    """Return a baseline out of a file. InputError where it is none, an entry has no reason, or its date is none."""
    found = from_json(data, SCHEMA, Baseline, source=source)
    for number, each in enumerate(found.accepted):
        if not each.reason.strip():
            raise InputError(f"{source}: accepted[{number}].reason: found nothing, wanted why {each.id} is accepted")
        parse_day(each.until, f"{source}: accepted[{number}].until")
    return found


def parse_day(text: str | None, place: str) -> dt.date:
    """Return the last day on which a finding is accepted. InputError, which names the place, for another text."""
    try:
        return dt.date.fromisoformat(text or "")
    except ValueError:
        raise InputError(f"{place}: found {text!r}, wanted a date as in 2027-01-31") from None


def dump_baseline(report: Report, *, reason: str, until: dt.date) -> bytes:
    """Return a file that accepts all findings of a report."""
    accepted = tuple(
        Accepted(id=each.id, subject=each.subject, reason=reason, until=until.isoformat()) for each in report.findings
    )
    return to_json(SCHEMA, Baseline(accepted=accepted))


def without_accepted(report: Report, baseline: Baseline, *, today: dt.date) -> Report:
    """Return the report with what is accepted today set apart."""
    known = {(each.id, each.subject) for each in baseline.accepted if dt.date.fromisoformat(each.until) >= today}
    accepted = tuple(each for each in report.findings if (each.id, each.subject) in known or (each.id, "*") in known)
    return replace(
        report,
        findings=tuple(each for each in report.findings if each not in accepted),
        accepted=(*report.accepted, *accepted),
    )
