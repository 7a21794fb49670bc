"""Findings of the doctor, and findings accepted until a date."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING, Any, Final

from ottla.admin import ClusterFacts
from ottla.admin.doctor import Baseline, Evidence, all_checks, chosen, examine, load_baseline, without_accepted
from ottla.admin.doctor.baseline import SCHEMA, Accepted, parse_day
from ottla.admin.facts.facts_file import read_bounded, to_json, write_whole
from ottla.browse.doctor_items import finding_items, report_fields
from ottla.console.declared_pages import drift_now
from ottla.console.query import Query
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin.declared.apply_plan import PlannedChange
    from ottla.console.state import ConsoleState

_QUESTION: Final = "doctor"
_FRESH_MS: Final = 15_000
_OLD_MS: Final = 15 * 60_000
_MOST_SHOWN: Final = 1_000
_MOST_REASON: Final = 500


class Looks:
    """The samples of the doctor: the newest, and the one before it that findings over time are compared with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[ClusterFacts] = []

    def facts(self, console: ConsoleState, *, fresh: bool) -> list[ClusterFacts]:
        """Return the samples, oldest first. One look at a time: a large cluster takes seconds."""
        with self._lock:
            now_ms = console.now_ms()
            last = self._seen[-1] if self._seen else None
            if last is None or fresh or now_ms - last.at_ms > _FRESH_MS:
                parts = set().union(*(check.reads for check in chosen().values() if not check.needs_app))
                found = console.admin.facts(parts)
                kept = [
                    each
                    for each in self._seen
                    if each.cluster_id == found.cluster_id and 0 < found.at_ms - each.at_ms < _OLD_MS
                ]
                self._seen = [*kept[:1], found]
            return list(self._seen)


def findings(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return the current findings, the worst first."""
    fresh = query.flag("fresh")
    query.done()
    if fresh:
        console.answers.forget(_QUESTION)
    found = console.answers.of(_QUESTION, lambda: _findings(console, fresh=fresh))
    return {**found, "age_ms": found["age_ms"] + found["asked"]["age_ms"]}


def _findings(console: ConsoleState, *, fresh: bool) -> dict[str, Any]:
    seen = console.looks.facts(console, fresh=fresh)
    drift, not_read = _drift(console)
    report = examine(Evidence(facts=seen[-1], earlier=seen[:-1], drift=drift, drift_not_read=not_read))
    if console.choices.baseline is not None and console.choices.baseline.exists():
        report = without_accepted(report, _baseline(console), today=dt.datetime.now(dt.UTC).date())
    items = finding_items(report)
    fields = report_fields(report, seen[-1])
    return {
        "schema": "ottla.doctor/1",
        "age_ms": max(0, console.now_ms() - seen[-1].at_ms),
        "has_baseline": console.choices.baseline is not None,
        "counts": {
            str(severity): sum(1 for each in items if each["severity"] == severity)
            for severity in ("error", "warning", "note")
        },
        "left_out": max(0, len(items) - _MOST_SHOWN),
        "items": items[:_MOST_SHOWN],
        **fields,
        "accepted": fields["accepted"][:_MOST_SHOWN],
    }


def _drift(console: ConsoleState) -> tuple[tuple[PlannedChange, ...] | None, tuple[str, ...]]:
    """Return what applying the console's files would change, and why it is not known of a part."""
    if not console.choices.declared:
        return None, ()
    try:
        found = drift_now(console)
    except InputError as error:  # a mistake in a file hides no other finding
        return (), (str(error),)
    return found.changes, found.not_read


def accept(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Accept a finding until a day: an entry of the baseline file."""
    id_ = query.needed("id")
    subject = query.needed("subject")
    reason = query.text("reason", most=_MOST_REASON)
    until = query.text("until", most=20)
    query.done()
    path = console.choices.baseline
    if path is None:
        raise InputError("found no baseline file: start the console with --baseline FILE")
    if id_ not in all_checks():
        raise InputError(f"id: found {id_[:20]!r}, wanted the id of a check")
    if reason is None or not reason.strip():
        raise InputError("reason: found nothing, wanted the reason")
    day = parse_day(until, "until")
    with console.files:
        known = _baseline(console) if path.exists() else Baseline(accepted=())
        others = tuple(each for each in known.accepted if (each.id, each.subject) != (id_, subject))
        entry = Accepted(id=id_, subject=subject, reason=reason, until=day.isoformat())
        console.audit("doctor.accept", f"{id_} {subject}", after={"reason": reason, "until": entry.until})
        write_whole(path, to_json(SCHEMA, Baseline(accepted=(*others, entry))))
    console.answers.forget(_QUESTION)
    return {"schema": "ottla.console.accepted/1", "id": id_, "subject": subject, "until": entry.until}


def _baseline(console: ConsoleState) -> Baseline:
    path = console.choices.baseline
    assert path is not None
    return load_baseline(read_bounded(path), source=str(path))
