"""How long the records of a handler take, and so how many of them a turn may have. Pure: time comes with each run.

The estimate rises at once and falls slowly. So the turn behind a slow one is short already, whatever was fast before:
where a turn is a transaction in the user's database, that many rows are locked for that long. One slow run among quick
ones costs a dozen short turns.
"""

from __future__ import annotations

from typing import Final

_MEMORY: Final = 0.7
"""Weight of the past where records get quicker."""


class Pace:
    """One handler's. `at_first` is how many records a turn has while nothing is known; None: all it may have."""

    __slots__ = ("_at_first", "_ms_per_record")

    def __init__(self, *, at_first: int | None = None) -> None:
        self._at_first = at_first
        self._ms_per_record: float | None = None

    def learn(self, *, records: int, took_ms: int) -> None:
        """A run of so many records took so long."""
        sample = took_ms / records
        known = self._ms_per_record
        if known is None or sample > known:
            self._ms_per_record = sample
        else:
            self._ms_per_record = _MEMORY * known + (1 - _MEMORY) * sample

    def most(self, *, allowance: int, turn_ms: int) -> int:
        """How many of the allowed records are expected to take `turn_ms` at the most; one in any case."""
        known = self._ms_per_record
        if known is None:
            return allowance if self._at_first is None else min(allowance, self._at_first)
        return allowance if known * allowance <= turn_ms else max(1, int(turn_ms / known))
