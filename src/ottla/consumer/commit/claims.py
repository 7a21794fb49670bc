"""Runs that wait for the commit behind them: the order of things when a record may be handled at most once.

A run is *claimed* when it is taken, *sent* when a commit that covers it is under way, and handed out when that commit
is acknowledged. A commit that fails leaves its runs claimed, for the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.consumer.model.effects import WriteDeadLetter
from ottla.consumer.model.run import Run
from ottla.consumer.partitions.partition import PartitionState


class Claims:
    """The runs of one session that are not handed out yet."""

    __slots__ = ("_sent", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Run] = []
        self._sent: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._waiting or self._sent)

    @property
    def want_a_commit(self) -> bool:
        return bool(self._waiting)

    def claim(self, state: PartitionState, run: Run) -> None:
        state.claimed = max(state.claimed or 0, run.records[-1].offset + 1)
        self._waiting.append(run)

    def sent(self) -> None:
        """A commit of all claimed positions is under way."""
        self._sent += self._waiting
        self._waiting = []

    def acknowledged(self) -> list[Run]:
        """The commit was acknowledged: these may be handled."""
        granted, self._sent = self._sent, []
        return granted

    def failed(self) -> None:
        self._waiting = self._sent + self._waiting
        self._sent = []

    def withdraw(self, is_meant: Callable[[Run], bool]) -> list[Run]:
        """Runs that will not be handed out any more."""
        withdrawn = [run for run in self._sent + self._waiting if is_meant(run)]
        self._sent = [run for run in self._sent if not is_meant(run)]
        self._waiting = [run for run in self._waiting if not is_meant(run)]
        return withdrawn


def handed_out_to(state: PartitionState) -> int | None:
    """The first offset that no handler has seen, for the last commit of a partition in order.

    A worker that did not end in time is at the record behind those it has done, and goes no further. What was handled
    behind a record whose dead letter is not written yet was handed out, and so was that record, if it could be decoded.
    """
    position = state.tracker.position or 0
    seen = state.tracker.finished_beyond()[-1:]
    for offset, letter in state.pending_writes.items():
        if not isinstance(letter.effect, WriteDeadLetter) or letter.effect.reason.kind != "malformed":
            seen.append(offset)
    for run in state.in_flight:
        handed_out = len(run.records) if state.plan.is_batch else run.handed_out
        seen.append(run.records[handed_out - 1].offset)
    return max(position, *(offset + 1 for offset in seen)) if seen else state.tracker.position
