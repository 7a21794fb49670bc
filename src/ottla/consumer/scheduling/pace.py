"""How long the records of a handler take, and so how many of them a turn may have. Pure: time comes with each run.

The estimate rises at once and falls slowly, so the turn after a slow one is short already: if a turn is a transaction
in the user's database, it locks that many rows for that long. One slow run among quick ones costs a dozen short turns.
"""

from __future__ import annotations

from typing import Final

_MEMORY: Final = 0.7
"""Weight of the past where records get quicker."""


class Pace:
    """The pace of one handler. `at_first`: records of a turn while nothing is known; None: as many as are allowed."""

    __slots__ = ("_at_first", "_ms_per_record")

    def __init__(self, *, at_first: int | None = None) -> None:
        self._at_first = at_first
        self._ms_per_record: float | None = None

    def learn(self, *, records: int, took_ms: int) -> None:
        """Take in the duration of a run."""
        sample = took_ms / records
        known = self._ms_per_record
        if known is None or sample > known:
            self._ms_per_record = sample
        else:
            self._ms_per_record = _MEMORY * known + (1 - _MEMORY) * sample

    def most(self, *, allowance: int, turn_ms: int) -> int:
        """Return how many of the allowed records should take at most `turn_ms`; at least one."""
        known = self._ms_per_record
        if known is None:
            return allowance if self._at_first is None else min(allowance, self._at_first)
        return allowance if known * allowance <= turn_ms else max(1, int(turn_ms / known))
