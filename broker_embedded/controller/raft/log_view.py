"""The log as the quorum's decisions see it: its end, and the start of each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class EpochEnd(NamedTuple):
    """An epoch and the offset where it ends in some log."""

    epoch: int
    end_offset: int


class LogView(Protocol):
    """The log of this node. It changes only by the effects that the machine asks for, and by a leader's appends."""

    @property
    def end_offset(self) -> int:
        """Everything below is on the disk."""
        ...

    @property
    def epoch_starts(self) -> Sequence[tuple[int, int]]:
        """(epoch, first offset) of every epoch that has a batch in the log, ascending."""
        ...


def last_epoch(log: LogView) -> int:
    """Return the epoch of the last batch; 0 for an empty log, as Kafka has it."""
    starts = log.epoch_starts
    return starts[-1][0] if starts else 0


def end_of_epoch(log: LogView, epoch: int) -> EpochEnd:
    """Return the largest epoch up to `epoch` with a batch in the log, and its end; (0, 0) without one."""
    found, end_offset = 0, log.end_offset
    for start_epoch, start_offset in reversed(log.epoch_starts):
        if start_epoch <= epoch:
            found = start_epoch
            break
        end_offset = start_offset
    else:
        end_offset = 0
    return EpochEnd(found, end_offset)


def divergence(log: LogView, *, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    """Return where the log of a reader that ends at `fetch_offset` in `last_fetched_epoch` diverges from this log; None
    if it does not.
    """
    if fetch_offset == 0:
        return None
    end = end_of_epoch(log, last_fetched_epoch)
    if end.epoch == last_fetched_epoch and end.end_offset >= fetch_offset:
        return None
    return end


def truncation_point(log: LogView, diverging: EpochEnd) -> int:
    """Return the offset up to which this log may agree with the leader's, which diverges at `diverging`."""
    own = end_of_epoch(log, diverging.epoch)
    if own.epoch == diverging.epoch:
        return min(own.end_offset, diverging.end_offset)
    return own.end_offset


def is_up_to_date(log: LogView, *, epoch: int, end_offset: int) -> bool:
    """Return whether a candidate's log with this end has everything that may be committed here."""
    return (epoch, end_offset) >= (last_epoch(log), log.end_offset)
