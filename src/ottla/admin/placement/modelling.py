"""Facts made into the model that planners look at. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.admin.facts.cluster_facts import BrokerInfo, ClusterFacts, LogDirInfo
from ottla.admin.facts.rates import Rates
from ottla.admin.facts.shared_disks import directories_by_disk
from ottla.admin.placement.cluster_model import Disk, Model, ModelBroker, ModelPartition
from ottla.errors import InputError
from ottla.topics import TopicPartition

MAX_FILL: Final = 0.85
"""How full a disk may become, at the end or during the move. Above it there is no time to react to a busy day."""


def model_of(
    facts: ClusterFacts,
    *,
    rates: Rates | None = None,
    max_fill: float = MAX_FILL,
    may_move: Callable[[str], bool] = lambda topic: True,
    dirs_are_disks: bool = False,
) -> Model:
    """Return the model of a cluster. `may_move` returns whether the replicas of a topic may be moved.

    Each directory is a disk, unless the figures of its broker say that several share one
    (`ottla.admin.facts.shared_disks`); with `dirs_are_disks` also then. Raises InputError where the directories of a
    live broker were not read: without sizes nothing can be planned by bytes.
    """
    if not 0 < max_fill <= 1:
        raise InputError(f"max fill: found {max_fill:g}, wanted more than 0 and at most 1 (0.85 is 85 %)")
    for broker in facts.brokers:
        if broker.log_dirs is None and not broker.is_fenced:
            why = next((each.reason for each in facts.not_read if each.subject == f"broker {broker.id}"), "not asked")
            raise InputError(f"broker {broker.id}: found no log directories, wanted them for a plan by bytes: {why}")
    disks = {broker.id: _disks_of(broker, max_fill, dirs_are_disks) for broker in facts.brokers}
    sizes = [disk.total for broker in facts.brokers if not broker.is_fenced for disk in disks[broker.id]]
    by_size = bool(sizes) and all(sizes)
    brokers = [
        ModelBroker(
            id=fact.id,
            rack=fact.rack,
            weight=float(sum(disk.total or 0 for disk in disks[fact.id] if disk.can_receive)) if by_size else 1.0,
            disks=disks[fact.id],
            is_fenced=fact.is_fenced,
        )
        for fact in facts.brokers
    ]
    lost = {broker for each in facts.by_partition.values() for broker in each.replicas} - facts.broker_ids
    brokers += [ModelBroker(id=broker, weight=0.0, is_registered=False) for broker in lost]
    return Model(
        cluster_id=facts.cluster_id,
        brokers=tuple(sorted(brokers, key=lambda each: each.id)),
        partitions=_partitions_of(facts, disks, rates, may_move),
        has_rates=rates is not None and any(rate > 0 for rate in rates.bytes_in.values()),
        at_ms=facts.at_ms,
    )


def _partitions_of(
    facts: ClusterFacts, disks: dict[int, tuple[Disk, ...]], rates: Rates | None, may_move: Callable[[str], bool]
) -> tuple[ModelPartition, ...]:
    moving = {TopicPartition(move.topic, move.partition) for move in facts.moves}
    index = {
        (broker, path): at for broker, each in disks.items() for at, disk in enumerate(each) for path in disk.paths
    }
    held: dict[TopicPartition, dict[int, int]] = {}
    for broker, log_dir, replica in facts.replicas():
        at = index.get((broker.id, log_dir.path))
        if at is not None:
            held.setdefault(TopicPartition(replica.topic, replica.partition), {})[broker.id] = at
    found = []
    for place, fact in facts.by_partition.items():
        fixed = "it is moving already" if place in moving else "" if may_move(place.topic) else "its topic was left out"
        found.append(
            ModelPartition(
                topic=place.topic,
                partition=place.partition,
                size=facts.partition_bytes.get(place, 0),
                rate=0.0 if rates is None else rates.bytes_in.get(place, 0.0),
                replicas=fact.replicas,
                disks=held.get(place, {}),
                leader=fact.leader,
                in_sync=fact.in_sync,
                fixed=fixed,
            )
        )
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition)))


def _disks_of(broker: BrokerInfo, max_fill: float, dirs_are_disks: bool) -> tuple[Disk, ...]:
    if dirs_are_disks:
        ordered = sorted(broker.log_dirs or (), key=lambda log_dir: log_dir.path)
        return tuple(_disk((log_dir,), max_fill) for log_dir in ordered)
    return tuple(_disk(log_dirs, max_fill) for log_dirs in directories_by_disk(broker))


def _disk(log_dirs: Sequence[LogDirInfo], max_fill: float) -> Disk:
    good = [log_dir for log_dir in log_dirs if log_dir.error is None]
    usable = [log_dir for log_dir in good if not log_dir.is_cordoned]
    total, room = (good[0].total_bytes if good else None), None
    if total is not None and good[0].usable_bytes is not None:
        held = sum(log_dir.replica_bytes for log_dir in good)
        foreign = max(0, (total - good[0].usable_bytes) - held)
        room = max(0, int(total * max_fill) - foreign)
    chosen = min(usable or log_dirs, key=lambda log_dir: (len(log_dir.replicas), log_dir.path))
    paths = tuple(log_dir.path for log_dir in log_dirs)
    return Disk(path=chosen.path, paths=paths, total=total, room=room, can_receive=bool(usable))
