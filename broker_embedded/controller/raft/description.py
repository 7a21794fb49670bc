"""DescribeQuorum's view of the replicas, from the leader's progress table."""

from __future__ import annotations

from broker_embedded.controller.quorum import QuorumReplica, QuorumView
from broker_embedded.controller.raft.member import Member
from broker_embedded.controller.raft.progress import LeaderProgress, ReplicaProgress

OBSERVER_SESSION_MS = 300_000
"""An observer without a fetch for this long is no longer listed, as in Kafka."""


def describe(leader: Member, progress: LeaderProgress, *, now_ms: int, wall_ms: int) -> QuorumView:
    """Describe the quorum. `now_ms` is the time of the leader's events, `wall_ms` the same moment since 1970."""

    def shown(replica: ReplicaProgress) -> QuorumReplica:
        return QuorumReplica(
            replica_id=replica.replica_id,
            log_end_offset=replica.end_offset,
            last_fetch_ms=_wall_time(replica.last_fetch_ms, now_ms=now_ms, wall_ms=wall_ms),
            last_caught_up_ms=_wall_time(replica.last_caught_up_ms, now_ms=now_ms, wall_ms=wall_ms),
        )

    own = QuorumReplica(
        replica_id=leader.node_id,
        log_end_offset=leader.log.end_offset,
        last_fetch_ms=wall_ms,
        last_caught_up_ms=wall_ms,
    )
    voters = [own, *(shown(each) for each in progress.voters())]
    observers = progress.observers()
    return QuorumView(
        leader_id=leader.node_id,
        epoch=leader.epoch,
        high_watermark=leader.high_watermark,
        voters=sorted(voters, key=lambda each: each.replica_id),
        observers=[shown(each) for each in observers if now_ms - each.last_fetch_ms <= OBSERVER_SESSION_MS],
    )


def _wall_time(at_ms: int, *, now_ms: int, wall_ms: int) -> int:
    return -1 if at_ms < 0 else wall_ms - (now_ms - at_ms)
