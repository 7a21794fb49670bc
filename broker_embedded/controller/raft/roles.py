"""The states of a quorum member, and which may follow which."""

from __future__ import annotations

from enum import Enum


class RaftRole(Enum):
    """An observer is unattached or a follower and nothing else."""

    UNATTACHED = "unattached"
    """Knows no leader. Searches for one, and stands for election after its timeout."""
    FOLLOWER = "follower"
    """Fetches from the leader of its epoch."""
    PROSPECTIVE = "prospective"
    """Requests pre-votes (KIP-996), so that a node that cannot win raises no other node's epoch."""
    CANDIDATE = "candidate"
    """Voted for itself in a new epoch and asks for votes."""
    LEADER = "leader"
    RESIGNED = "resigned"
    """Led its epoch, no longer does, and may not lead it again."""


VALID_PREVIOUS: dict[RaftRole, frozenset[RaftRole]] = {
    RaftRole.UNATTACHED: frozenset(RaftRole),
    RaftRole.FOLLOWER: frozenset(RaftRole),
    RaftRole.PROSPECTIVE: frozenset({RaftRole.UNATTACHED, RaftRole.FOLLOWER, RaftRole.CANDIDATE, RaftRole.RESIGNED}),
    RaftRole.CANDIDATE: frozenset({RaftRole.PROSPECTIVE}),
    RaftRole.LEADER: frozenset({RaftRole.CANDIDATE}),
    RaftRole.RESIGNED: frozenset({RaftRole.LEADER, RaftRole.UNATTACHED}),
}
"""UNATTACHED also stands for a node that has just started."""
