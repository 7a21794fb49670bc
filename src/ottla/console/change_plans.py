"""Changes of topics and access: each is shown first, and carried out by its number, once.

A planner asks the cluster what would change, by the functions that the command line uses, and changes nothing. The
change asks again before it begins, and is refused if another client has changed the subject since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.console.query import Query
from ottla.console.state import ConsoleState
from ottla.errors import InputError

ShownRow = Mapping[str, Any]
"""What it is (`name`), `old` and `new`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A change that was shown, and may be carried out."""

    what: str
    """The name of the change in the audit file, as `topics.delete`."""
    subject: str
    rows: tuple[ShownRow, ...]
    run: Callable[[], object]
    check: Callable[[], tuple[ShownRow, ...]]
    """Returns the rows as they would be shown now."""
    typed: str | None = None
    """What has to be typed to agree: the name of what is lost."""
    notes: tuple[str, ...] = ()
    """Consequences, as sentences."""
    done: str = "Changed."
    forgets: tuple[tuple[object, ...], ...] = field(default=())
    """Answers of pages that are no longer true."""


Planner = Callable[[ConsoleState, Query], ShownChange]


def plan_change(planners: Mapping[str, Planner], console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return what would change. Changes nothing; `apply_change` takes its number."""
    change = planners[query.one_of("kind", planners, "")](console, query)
    return {
        "schema": "ottla.console.change/1",
        "plan": console.plans.keep(change) if change.rows else None,
        "subject": change.subject,
        "items": list(change.rows),
        "notes": list(change.notes),
        "typed": change.typed,
    }


def apply_change(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Carry out a change that was shown. A line in the audit file is written before it begins."""
    number = query.number("plan", None, least=1, most=2**53)
    typed = query.text("typed")
    console.agree(query)
    change = console.plans.take(number, ShownChange)
    if change.typed is not None and typed != change.typed:
        raise InputError(f"nothing was changed: type {change.typed} to agree, and ask for the change again")
    if change.check() != change.rows:
        raise InputError(f"nothing was changed: {change.subject} is not as it was shown; ask for the change again")
    console.audit(
        change.what,
        change.subject,
        before={row["name"]: row["old"] for row in change.rows},
        after={row["name"]: row["new"] for row in change.rows},
    )
    try:
        change.run()
    finally:
        for question in change.forgets:
            console.answers.forget(question)
    return {"schema": "ottla.console.changed/1", "subject": change.subject, "done": change.done}


def row(name: str, old: Any, new: Any) -> ShownRow:
    """Return one row of what would change; None is not there."""
    return {"name": name, "old": old, "new": new}


MOST_LINES: Final = 200


def lines_of(text: str | None) -> Sequence[str]:
    """Return the lines of a text field that are not empty."""
    found = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if len(found) > MOST_LINES:
        raise InputError(f"found {len(found):,} lines, wanted at most {MOST_LINES}")
    return found
