"""The state of a cluster at one moment, gathered from all its nodes, for `explain`, waits and the control API.

This module does not depend on the broker: `LocalControl.facts` makes the facts from a live cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from ottla_wire.facts import fact

NO_NODE = -1


class NodeState(Enum):
    """State of a node."""

    RUNNING = "running"
    PAUSED = "paused"
    """Suspended: it neither reads nor sends requests."""
    STOPPED = "stopped"
    """It ended cleanly."""
    KILLED = "killed"


@fact
class NodeFacts:
    """One node, with its broker and its vote."""

    node: int
    state: NodeState = NodeState.RUNNING
    address: str = ""
    is_fenced: bool = False
    """Whether the controller has fenced its broker, after a session without a heartbeat."""
    is_voter: bool = False
    offline_dirs: Mapping[str, str] = field(default_factory=dict)
    """Log directories whose disk failed, and why."""

    @property
    def is_up(self) -> bool:
        return self.state is NodeState.RUNNING


@fact
class OngoingTransaction:
    """One that is neither committed nor aborted."""

    producer_id: int
    first_offset: int
    transactional_id: str | None = None
    open_for_ms: int | None = None


@fact
class ReplicaFacts:
    """One copy of a partition, as its own node has it."""

    node: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int = -1
    behind_for_ms: int | None = None
    """How long the follower has been behind, by the leader's measure; None if it is not, or without a leader."""
    fetch_error: str | None = None
    """Error of its last fetch from the leader; None if that succeeded."""
    offline_reason: str | None = None
    """Why its log directory is offline."""
    directory: str = ""
    """Directory of its files."""


@fact
class ShareRunFacts:
    """Records of a share group that have one state: `first` to `last`, both included. `state` is Kafka's word for it,
    ``acquired`` is leased."""

    first: int
    last: int
    state: str
    delivery_count: int
    member_id: str = ""
    ends_in_ms: int | None = None
    """When the lock of an acquired record ends, unless it is renewed."""

    @property
    def records(self) -> int:
        return self.last - self.first + 1


@fact
class ShareFacts:
    """A share group's state of one partition, from its leader's memory."""

    group: str
    start_offset: int
    end_offset: int
    max_locks: int
    """`share.partition.max.record.locks` of the group."""
    delivery_limit: int
    """`share.delivery.count.limit` of the group."""
    sessions: int
    """Members of the group that have a share session with the leader."""
    runs: tuple[ShareRunFacts, ...] = ()
    """From the start offset to the end offset, without gaps."""

    @property
    def in_flight(self) -> int:
        return self.end_offset - self.start_offset

    def records(self, *states: str) -> int:
        """Return how many records are in one of these states."""
        return sum(run.records for run in self.runs if run.state in states)

    def to_json(self) -> dict[str, Any]:
        """Return the figures of a share group, as `GET /shares` shows them."""
        leases = [run for run in self.runs if run.state == "acquired"]
        return {
            "group": self.group,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "in_flight": self.in_flight,
            "leased": sum(run.records for run in leases),
            "available": self.records("available"),
            "most_in_flight": self.max_locks,
            "delivery_limit": self.delivery_limit,
            "highest_delivery_count": max((run.delivery_count for run in self.runs), default=0),
            "lowest_lease": min((run.first for run in leases), default=None),
            "next_lock_ends_in_ms": min((run.ends_in_ms for run in leases if run.ends_in_ms is not None), default=None),
            "members": sorted({run.member_id for run in leases}),
            "sessions": self.sessions,
        }


@fact
class PartitionFacts:
    """A partition's metadata, and its replicas on the nodes that are up."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_insync_replicas: int = 1
    """How many in-sync replicas acks=all requires: the setting, but never more than there are replicas."""
    allows_unclean_election: bool = False
    pending_isr: tuple[int, ...] | None = None
    """The ISR that the leader has requested from the controller."""
    copies: Mapping[int, ReplicaFacts] = field(default_factory=dict)
    open_transactions: tuple[OngoingTransaction, ...] = ()
    shares: tuple[ShareFacts, ...] = ()
    """State of the share groups that have fetched from it since its leader was elected."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def led(self) -> ReplicaFacts | None:
        """The leader's copy."""
        return self.copies.get(self.leader)


@fact
class GroupFacts:
    """A group as its coordinator has it."""

    group: str
    state: str
    """Kafka's name of it: Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, Stable, Dead."""
    members: int
    protocol_type: str = ""


@fact
class FaultFacts:
    """A fault of requests that is armed."""

    description: str
    fault_id: int
    hits: int = 0
    held: int = 0
    api: str | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None


@fact
class DiskFaultFacts:
    """A fault of a disk."""

    broker: int
    kind: str
    path: str


@fact
class EmbeddedClusterFacts:
    """The whole of it."""

    cluster_id: str = ""
    controller: int = NO_NODE
    """The active controller; -1 if there is none."""
    nodes: Mapping[int, NodeFacts] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], PartitionFacts] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    cut_links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(source, target) -> why no request gets through."""
    slow_links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """(source, target) -> delay in ms."""
    faults: tuple[FaultFacts, ...] = ()
    disk_faults: tuple[DiskFaultFacts, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that explanations name."""

    def to_json(self) -> dict[str, Any]:
        """Return brokers and partitions, as `GET /cluster` shows them."""
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "brokers": [
                {
                    "id": each.node,
                    "state": each.state.value,
                    "address": each.address,
                    "fenced": each.is_fenced,
                    "offline_dirs": dict(each.offline_dirs),
                }
                for _, each in sorted(self.nodes.items())
            ],
            "partitions": [_partition_to_json(each) for _, each in sorted(self.partitions.items())],
            "groups": [
                {"group": each.group, "state": each.state, "members": each.members}
                for _, each in sorted(self.groups.items())
            ],
        }


def _partition_to_json(facts: PartitionFacts) -> dict[str, Any]:
    led = facts.led
    return {
        "topic": facts.topic,
        "partition": facts.partition,
        "leader": facts.leader,
        "leader_epoch": facts.leader_epoch,
        "replicas": list(facts.replicas),
        "isr": list(facts.isr),
        "high_watermark": None if led is None else led.high_watermark,
        "log_end_offset": None if led is None else led.log_end_offset,
    }
