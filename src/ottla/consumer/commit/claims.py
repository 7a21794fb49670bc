"""Runs that wait for the commit of their end: at most once, a run is handled after its offsets are committed.

A run is *claimed* when it is taken, *sent* when a commit that covers it is under way, and handed out when that commit
is acknowledged. A commit that fails leaves its runs claimed, for the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.consumer.model.failed_writes import WriteDeadLetter
from ottla.consumer.model.run import Run
from ottla.consumer.partitions.partition import PartitionState


class Claims:
    """The runs of one session that wait for their commit."""

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
        run.is_claimed = True
        self._waiting.append(run)

    def sent(self) -> None:
        """Note that a commit of all claimed positions was sent."""
        self._sent += self._waiting
        self._waiting = []

    def acknowledged(self) -> list[Run]:
        """Note that the commit was acknowledged. Returns the runs that may be handled now."""
        granted, self._sent = self._sent, []
        for run in granted:
            run.is_claimed = False
        return granted

    def failed(self) -> None:
        self._waiting = self._sent + self._waiting
        self._sent = []

    def withdraw(self, is_meant: Callable[[Run], bool]) -> list[Run]:
        """Remove and return the runs for which `is_meant` is true: they are not handed out."""
        withdrawn = [run for run in self._sent + self._waiting if is_meant(run)]
        self._sent = [run for run in self._sent if not is_meant(run)]
        self._waiting = [run for run in self._waiting if not is_meant(run)]
        return withdrawn


def handed_out_to(state: PartitionState) -> int | None:
    """Return the first offset that no handler has seen, for the last commit of a partition.

    A worker that did not end in time is at the record after those it has done, and stops there. Records handled after
    one whose dead letter is not written yet were handed out, and so was that one, unless it could not be deserialized.
    """
    position = state.tracker.position or 0
    seen = state.tracker.finished_beyond()[-1:]
    for offset, write in state.pending_writes.items():
        if not isinstance(write.effect, WriteDeadLetter) or write.effect.reason.kind != "malformed":
            seen.append(offset)
    for run in state.in_flight:
        handed_out = len(run.records) if state.plan.is_batch else run.handed_out
        seen.append(run.records[handed_out - 1].offset)
    return max(position, *(offset + 1 for offset in seen)) if seen else state.tracker.position
