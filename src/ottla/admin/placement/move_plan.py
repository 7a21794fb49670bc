"""A plan: which partitions change, why each does, and the brokers before and after. Frozen, and without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.admin.placement.goals import Floor
from ottla.topics import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskMove:
    """A replica that goes from one disk of its broker to another. Paths are log directories."""

    broker: int
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that changes. `old` and `new` are its replicas in order, the preferred leader first.

    `log_dirs` has a path or `any` for each of `new`. `bytes` is the size of one replica. `batch` counts from 1.
    """

    topic: str
    partition: int
    bytes: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()
    disk_moves: tuple[DiskMove, ...] = ()
    why: str = ""
    batch: int = 0
    rate: float = 0.0

    @property
    def place(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that get a replica."""
        return tuple(broker for broker in self.new if broker not in self.old)

    @property
    def removing(self) -> tuple[int, ...]:
        """Brokers that lose one."""
        return tuple(broker for broker in self.old if broker not in self.new)

    @property
    def copied(self) -> int:
        """The bytes that go over the network."""
        return self.bytes * len(self.adding)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """The load of a broker. `level` is its bytes over its fair share; None if it takes no part. Rates per second."""

    id: int
    rack: str | None
    bytes: int
    level: float | None
    replicas: int
    leaders: int
    rate_in: float
    leader_weight: float
    disks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A move that was planned and cannot be made, with the reason."""

    topic: str
    partition: int
    why: str


@dataclass(frozen=True, kw_only=True)
class MovePlan:
    """`floor` is what can be reached at all. `is_cut_short`: the time ended before the search did.

    `weighed_by` is what leaders are spread by: `write rate` or `size`.
    """

    kind: str
    cluster_id: str
    at_ms: int
    tolerance: float
    max_fill: float
    moves: tuple[Move, ...]
    floor: Floor
    before: tuple[BrokerLoad, ...]
    after: tuple[BrokerLoad, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    is_cut_short: bool = False
    weighed_by: str = "size"

    @property
    def bytes_copied(self) -> int:
        """The bytes that go from broker to broker."""
        return sum(move.copied for move in self.moves)

    @property
    def bytes_between_disks(self) -> int:
        """The bytes that go from disk to disk within brokers."""
        return sum(move.bytes * len(move.disk_moves) for move in self.moves)

    @property
    def batches(self) -> int:
        """Return how many steps it has, if each waits for the one before."""
        return max((move.batch for move in self.moves), default=0)


def fullest(loads: tuple[BrokerLoad, ...]) -> float:
    """Return the highest level of the brokers."""
    return max((load.level for load in loads if load.level is not None), default=0.0)


def leader_skew(loads: tuple[BrokerLoad, ...]) -> float:
    """Return the most that a broker leads, over the mean."""
    led = [load.leader_weight for load in loads if load.level is not None]
    mean = sum(led) / len(led) if led else 0.0
    return max(led) / mean if mean > 0 else 1.0
