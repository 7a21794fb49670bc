"""Marks and claims on SQLite by counting changed rows instead of returning them.

Mostly all messages of a run are new, and then the count says so. Rows that an insert returns cost SQLite a third of it:
1.4 of 3.9 µs per message in runs of 500. Only where the count is short are they asked for. Whoever executes the
statements must be one connection from the first to the last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ottla.stores.sql_sessions import Operation, Operations
from ottla.stores.sql_text import SQLITE, Statement


def _without_rows(statement: Statement) -> Statement:
    return Statement(statement.text.rpartition(" returning ")[0])


_MARK: Final = _without_rows(SQLITE.mark)
_CLAIM: Final = _without_rows(SQLITE.claim)
_FINISH: Final = _without_rows(SQLITE.finish)
_CHANGES: Final = Statement("select changes()")
_CLAIMED: Final = Statement(
    "select message_id from ottla_inbox "
    "where consumer = :consumer and message_id in (select value from json_each(:ids)) and owner = :owner"
)
_SAVEPOINT: Final = Statement("savepoint ottla_mark")
_UNDO: Final = Statement("rollback to ottla_mark")
_RELEASE: Final = Statement("release ottla_mark")


class CountingOperations(Operations):
    """`Operations` for a connection that knows how many rows its last statement changed. See the module."""

    def mark(self, consumer: str, ids: Sequence[str]) -> Operation[Collection[str]]:
        yield _SAVEPOINT, {}
        yield _MARK, self._ids(consumer, ids)
        rows = yield _CHANGES, {}
        are_all_new = rows[0][0] == len(ids)
        if not are_all_new:
            yield _UNDO, {}  # which of them were new is no longer known
        yield _RELEASE, {}
        return set(ids) if are_all_new else (yield from super().mark(consumer, ids))

    def claim(self, consumer: str, ids: Sequence[str], owner: str, lease_ms: int) -> Operation[Collection[str]]:
        given = self._ids(consumer, ids, owner=owner, lease_ms=lease_ms)
        yield _CLAIM, given
        rows = yield _CHANGES, {}
        if rows[0][0] == len(ids):
            return ids
        return [row[0] for row in (yield _CLAIMED, given)]  # an owner claims for one run: what is its own, it just got

    def finish(self, consumer: str, ids: Sequence[str]) -> Operation[None]:
        yield _FINISH, self._ids(consumer, ids)
