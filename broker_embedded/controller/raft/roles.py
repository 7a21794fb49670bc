"""The states of a quorum member, and which may follow which."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """An observer is unattached or a follower and nothing else."""

    UNATTACHED = "unattached"
    """Knows no leader. Looks for one, and stands for election when its timeout ends."""
    FOLLOWER = "follower"
    """Fetches from the leader of its epoch."""
    PROSPECTIVE = "prospective"
    """Asks whether it would be elected (pre-vote, KIP-996), so that a node that cannot win raises nobody's epoch."""
    CANDIDATE = "candidate"
    """Voted for itself in a new epoch and asks for votes."""
    LEADER = "leader"
    RESIGNED = "resigned"
    """Led its epoch, no longer does, and may not lead it again."""


VALID_PREVIOUS: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset(Role),
    Role.FOLLOWER: frozenset(Role),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE, Role.RESIGNED}),
    Role.CANDIDATE: frozenset({Role.PROSPECTIVE}),
    Role.LEADER: frozenset({Role.CANDIDATE}),
    Role.RESIGNED: frozenset({Role.LEADER, Role.UNATTACHED}),
}
"""UNATTACHED also stands for a node that has just started."""
