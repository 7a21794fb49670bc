"""Progress of the replicas, as the leader of an epoch knows it from their fetches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NEVER = -1


class ReplicaProgress:
    """The progress of one voter or observer. Each time is when its event happened; -1 means never."""

    __slots__ = ("end_offset", "last_caught_up_ms", "last_fetch_leader_end", "last_fetch_ms", "replica_id")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.end_offset = NEVER
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = NEVER
        self.last_fetch_leader_end = NEVER

    def fetched(self, offset: int, *, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_leader_end >= 0 and offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end = leader_end


class LeaderProgress:
    """All replicas of one epoch. The epoch is led from `since_ms` on; its first batch is at `epoch_start_offset`."""

    def __init__(
        self, *, node_id: int, voters: Sequence[int], granting: Iterable[int], epoch_start_offset: int, since_ms: int
    ) -> None:
        self.epoch_start_offset = epoch_start_offset
        self.granting = tuple(sorted(granting))
        self._node_id = node_id
        self._voters = tuple(voters)
        self._since_ms = since_ms
        self._replicas = {voter: ReplicaProgress(voter) for voter in voters if voter != node_id}

    def fetched(self, replica_id: int, offset: int, *, leader_end: int, now_ms: int) -> None:
        replica = self._replicas.get(replica_id)
        if replica is None:
            replica = self._replicas[replica_id] = ReplicaProgress(replica_id)
        replica.fetched(offset, leader_end=leader_end, now_ms=now_ms)

    def majority_end(self, own_end: int) -> int:
        """Return the offset that a majority of the voters has. Counted by fetches, which follow the replica's fsync."""
        ends = sorted(
            (own_end if voter == self._node_id else self._replicas[voter].end_offset for voter in self._voters),
            reverse=True,
        )
        return ends[len(ends) // 2]

    def majority_seen_ms(self) -> int | None:
        """Return when a majority, this node included, was last in contact; None if this node alone is one."""
        others_needed = len(self._voters) // 2
        if not others_needed:
            return None
        seen = sorted((replica.last_fetch_ms for replica in self.voters()), reverse=True)
        return max(seen[others_needed - 1], self._since_ms)

    def last_fetch_ms(self, replica_id: int) -> int:
        return self._replicas[replica_id].last_fetch_ms

    def voters(self) -> list[ReplicaProgress]:
        """Return the other voters."""
        return [self._replicas[voter] for voter in self._voters if voter != self._node_id]

    def observers(self) -> list[ReplicaProgress]:
        return [each for node, each in sorted(self._replicas.items()) if node not in self._voters]

    def successors(self) -> list[int]:
        """Return the other voters, furthest first: in this order they should stand for election when this node
        resigns."""
        return [each.replica_id for each in sorted(self.voters(), key=lambda each: -each.end_offset)]
