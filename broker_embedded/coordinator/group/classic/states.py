"""The states of a classic group and the moves between them, as one table that code, docs and tests read."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType


class State(Enum):
    """A group's state. The value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    """No members. Offsets may remain; they expire."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for every member to send JoinGroup."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Everyone has the new generation; waiting for the leader's SyncGroup with the assignment."""
    STABLE = "Stable"
    """Everyone may have the assignment."""
    DEAD = "Dead"
    """Deleted, or moved to another coordinator. Nothing leads out."""


VALID_PREVIOUS = MappingProxyType(
    {
        State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
        State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE}),
        State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
        State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
        State.DEAD: frozenset(State),
    }
)
"""state -> the states it may be entered from."""


def may_move(before: State, after: State) -> bool:
    """Return whether the table allows the transition from `before` to `after`."""
    return before in VALID_PREVIOUS[after]
