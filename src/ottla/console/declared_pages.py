"""What `ottla apply` would change of the files that the console was started with. Nothing is changed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.browse.apply_drift import Drift, change_item, find_drift
from ottla.browse.registry_access import RegistryAccess
from ottla.console.query import Query
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.console.state import ConsoleState

_QUESTION: Final = "declared"
_MOST_SHOWN: Final = 1_000


def declared(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return the changes, as `ottla apply plan` prints them. The files are read again each time."""
    fresh = query.flag("fresh")
    query.done()
    if not console.choices.declared:
        raise InputError("this console has no files of `ottla apply`: start it with --declared FILE")
    if fresh:
        console.answers.forget(_QUESTION)
    return console.answers.of(_QUESTION, lambda: _declared(console))


def drift_now(console: ConsoleState) -> Drift:
    """Return what applying the console's files would change."""
    registry = console.choices.registry
    access = RegistryAccess(url=registry) if isinstance(registry, str) else registry
    return find_drift(console.admin, console.choices.declared, access)


def _declared(console: ConsoleState) -> dict[str, Any]:
    drift = drift_now(console)
    return {
        "schema": "ottla.console.declared/1",
        "files": [str(file) for file in console.choices.declared],
        "cluster": drift.cluster_id,
        "total": len(drift.changes),
        "items": [change_item(each) for each in drift.changes[:_MOST_SHOWN]],
        "not_read": list(drift.not_read),
    }
