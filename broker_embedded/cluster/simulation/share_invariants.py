"""Invariants of share partitions, checked whenever no request is under way, and at the end (KIP-932).

| rule | looked at |
|---|---|
| runs cover start to end offset, each once; the record at the start offset is not settled | each leader |
| the start offset and the end offset never move back | each leader, while it leads |
| no delivery count is above the limit | each leader |
| what was answered as accepted is settled, whatever fails | the newest leader |
| every record was accepted, or was delivered as often as the limit says | at the end |

A leader that was replaced and does not know it may still lease what others have settled: its writes are fenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from broker_embedded.cluster.simulation.committed import CommittedLog
from broker_embedded.cluster.simulation.nodes import SimulatedNode
from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.common.types import TopicPartition
from broker_embedded.share.partition import SharePartition
from broker_embedded.share.share_host import ShareHost
from broker_embedded.share.states import FINAL, RecordState

SHARE_GROUP = "sharers"
SHARE_LOCK_MS = 3_000
SHARE_DELIVERIES = 10
"""`share.delivery.count.limit`, as high as it may be."""


class ShareInvariants:
    """Invariants of one share group. Members report to it; `check` reads the brokers."""

    def __init__(self) -> None:
        self.deliveries: Counter[tuple[TopicPartition, int]] = Counter()
        self._asked: dict[TopicPartition, set[int]] = {}
        self._accepted: dict[TopicPartition, set[int]] = {}
        self._spent: dict[TopicPartition, set[int]] = {}
        """Records whose delivery count has reached the limit."""
        self._newest: dict[TopicPartition, int] = {}
        self._seen: dict[int, tuple[SharePartition, tuple[int, ...]]] = {}

    # --- from the members

    def delivered(self, place: TopicPartition, offset: int) -> None:
        """Count a delivery to a member."""
        self.deliveries[place, offset] += 1

    def asked(self, place: TopicPartition, offsets: Iterable[int]) -> None:
        """Record that a member accepts these records; the response may be lost."""
        self._asked.setdefault(place, set()).update(offsets)

    def accepted(self, place: TopicPartition, offsets: Iterable[int]) -> None:
        """Record that the leader has kept the acceptance."""
        self._accepted.setdefault(place, set()).update(offsets)

    # --- the rules

    def check(self, nodes: Iterable[SimulatedNode]) -> None:
        """Check each share partition that has changed."""
        for node in nodes:
            if node.broker is None:
                continue
            for host in node.broker.shares.hosts():
                if host.partition is not None and not host.is_closed:
                    self._check(node, host, host.partition)

    def _check(self, node: SimulatedNode, host: ShareHost, share: SharePartition) -> None:
        place = host.log.topic_partition
        newest = self._newest[place] = max(host.leader_epoch, self._newest.get(place, -1))
        now = (share.start_offset, share.end_offset, share.complete_count, len(share.runs), share.steps)
        seen = self._seen.get(id(host))
        if seen is not None and seen[0] is share and seen[1] == now:
            return
        where = f"{place}, {node.name} in epoch {host.leader_epoch}"
        if seen is not None and seen[0] is share and (seen[1][0] > now[0] or seen[1][1] > now[1]):
            raise InvariantViolated("share offsets never move back", f"{where}: {seen[1][:2]}, then {now[:2]}")
        self._seen[id(host)] = (share, now)
        self._check_runs(where, place, share)
        if host.leader_epoch == newest:
            self._check_accepted(where, place, share)

    def _check_runs(self, where: str, place: TopicPartition, share: SharePartition) -> None:
        expected = share.start_offset
        for run in share.runs:
            if run.first != expected or run.last < run.first:
                raise InvariantViolated("runs cover start to end offset", f"{where}: {run}, wanted from {expected}")
            expected = run.last + 1
            count = run.standing.delivery_count
            if count > SHARE_DELIVERIES:
                raise InvariantViolated("no record is delivered beyond the limit", f"{where}: {run}")
            if count == SHARE_DELIVERIES:
                self._spent.setdefault(place, set()).update(range(run.first, run.last + 1))
        if expected != share.end_offset:
            raise InvariantViolated("runs cover start to end offset", f"{where}: to {expected} of {share.end_offset}")
        first = next(iter(share.runs), None)
        if first is not None and first.standing.state in FINAL and not first.write_id:
            raise InvariantViolated("the record at the start offset is not settled", f"{where}: {first}")

    def _check_accepted(self, where: str, place: TopicPartition, share: SharePartition) -> None:
        accepted = self._accepted.get(place, ())
        for run in share.runs:
            if run.standing.state in (RecordState.AVAILABLE, RecordState.ACQUIRED):
                lost = [offset for offset in range(run.first, run.last + 1) if offset in accepted]
                if lost:
                    raise InvariantViolated("what was accepted is settled", f"{where}: {lost[:5]} in {run}")
        beyond = [offset for offset in accepted if offset >= share.end_offset]
        if beyond:
            raise InvariantViolated("what was accepted is settled", f"{where}: {beyond[:5]} beyond {share.end_offset}")

    # --- the end

    def is_settled(self, nodes: Iterable[SimulatedNode], place: TopicPartition, end_offset: int) -> bool:
        """Return whether the newest leader has settled everything before `end_offset`."""
        for node in nodes:
            for host in () if node.broker is None else node.broker.shares.hosts_of(place):
                share = host.partition
                is_newest = host.leader_epoch == self._newest.get(place) and not host.is_closed
                if share is not None and is_newest and share.start_offset >= end_offset:
                    return True
        return False

    def check_end(self, logs: Mapping[TopicPartition, CommittedLog]) -> None:
        """Check that no record was given up that a member had not accepted, nor been given often enough."""
        for place, committed in logs.items():
            lost = set(committed.values) - self._asked.get(place, set()) - self._spent.get(place, set())
            if lost:
                raise InvariantViolated("nothing below the limit is lost", f"{place}: {sorted(lost)[:10]}")
