"""What a planner looks at: brokers with their disks, partitions with sizes, write rates and replicas. Frozen.

Sizes are bytes, rates bytes per second. A partition is as large as its largest replica: one that lags will grow to it.
`ottla.admin.placement.modelling` makes a model of facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ottla.topics import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk of a broker. `path` is the log directory in which replicas are put when this disk is chosen.

    `total` is its size, None if unknown. `room` is how many bytes of replicas it may hold up to the fill
    limit, None if its size is unknown. `can_receive` is false for a directory that is cordoned or offline.
    """

    path: str
    paths: tuple[str, ...] = ()
    total: int | None = None
    room: int | None = None
    can_receive: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelBroker:
    """A broker. `weight` is its relative share of the bytes: the size of its disks, or 1 for every broker. A fenced
    broker keeps its replicas and receives none. Replicas on a broker that is not `is_registered` are lost."""

    id: int
    rack: str | None = None
    weight: float = 1.0
    disks: tuple[Disk, ...] = ()
    is_fenced: bool = False
    is_registered: bool = True

    @cached_property
    def room(self) -> int | None:
        """Return how many bytes of replicas it may hold; None if the size of a disk is unknown."""
        rooms = [disk.room for disk in self.disks]
        return None if any(room is None for room in rooms) else sum(room or 0 for room in rooms)

    @cached_property
    def can_receive(self) -> bool:
        """Return whether replicas can be put here."""
        return self.is_registered and not self.is_fenced and any(disk.can_receive for disk in self.disks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPartition:
    """A partition. `replicas` are broker ids, the preferred leader first; `disks` maps a broker to the index of its
    disk. `fixed` says why the partition must not move, and is empty if it may. `leader` and `in_sync` are the current
    ones."""

    topic: str
    partition: int
    size: int
    rate: float
    replicas: tuple[int, ...]
    disks: Mapping[int, int] = field(default_factory=dict)
    leader: int | None = None
    in_sync: tuple[int, ...] = ()
    fixed: str = ""

    @property
    def place(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A cluster as a planner sees it. Brokers by id, partitions by topic and number.

    `has_rates` is false where no write was measured: `rate` is 0 then, and leaders are weighed by size.
    """

    cluster_id: str
    brokers: tuple[ModelBroker, ...]
    partitions: tuple[ModelPartition, ...]
    has_rates: bool = False
    at_ms: int = 0

    @cached_property
    def by_id(self) -> Mapping[int, ModelBroker]:
        """Brokers by their id."""
        return {broker.id: broker for broker in self.brokers}

    @cached_property
    def by_place(self) -> Mapping[TopicPartition, ModelPartition]:
        """Partitions by topic and number."""
        return {each.place: each for each in self.partitions}

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """The racks that have a broker which is up. Brokers without a rack are one rack together."""
        return tuple(sorted({broker.rack or "" for broker in self.brokers if broker.can_receive}))

    def rack_of(self, broker: int) -> str:
        """Return the rack of a broker, empty where it has none or is not known."""
        known = self.by_id.get(broker)
        return (known.rack or "") if known is not None else ""
