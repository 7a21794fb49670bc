"""Clusters for planners: drawn by hypothesis, or made of a seed as they grow in practice."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from ottla.admin.facts.cluster_facts import (
    BrokerInfo,
    ClusterFacts,
    LogDirInfo,
    Part,
    PartitionInfo,
    ReplicaInfo,
    TopicInfo,
)
from ottla.admin.placement.cluster_model import Disk, Model, ModelBroker, ModelPartition
from ottla.admin.placement.move_plan import MovePlan
from ottla.admin.placement.move_schedule import Rooms
from ottla.admin.placement.placement_state import Goals

FILL = 0.85


def broker(
    number: int, *, rack: str | None = None, disks: Collection[int] = (1 << 40,), fenced: bool = False
) -> ModelBroker:
    """A broker with disks of so many bytes."""
    made = tuple(
        Disk(path=f"/d{at}", paths=(f"/d{at}",), total=size, room=int(size * FILL)) for at, size in enumerate(disks)
    )
    return ModelBroker(id=number, rack=rack, weight=float(sum(disks)), disks=made, is_fenced=fenced)


def partition(
    topic: str,
    number: int,
    size: int,
    replicas: Collection[int],
    *,
    rate: float = 0.0,
    disks: Mapping[int, int] | None = None,
    fixed: str = "",
) -> ModelPartition:
    """A partition that is led by its preferred replica."""
    held = tuple(replicas)
    on = dict.fromkeys(held, 0) if disks is None else disks
    return ModelPartition(
        topic=topic,
        partition=number,
        size=size,
        rate=rate,
        replicas=held,
        disks=on,
        leader=held[0],
        in_sync=held,
        fixed=fixed,
    )


def model(brokers: Collection[ModelBroker], partitions: Collection[ModelPartition], *, rates: bool = False) -> Model:
    """A cluster."""
    return Model(cluster_id="c", brokers=tuple(brokers), partitions=tuple(partitions), has_rates=rates)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Small clusters of any shape: racks or none, one disk or several, tight or roomy, replicas anywhere."""
    racks: list[str | None] = draw(st.sampled_from([[None], ["a", "b"], ["a", "b", "c"]]))
    count = draw(st.integers(2, 7))
    disk = st.sampled_from([300, 1_000, 2_000])
    brokers = [
        broker(
            number,
            rack=racks[number % len(racks)],
            disks=draw(st.lists(disk, min_size=1, max_size=2)),
            fenced=number > 2 and draw(st.integers(0, 9)) == 0,
        )
        for number in range(1, count + 1)
    ]
    closed = draw(st.integers(0, 5 * count))
    if 2 < closed <= count:  # its last disk is cordoned, or offline
        *open_disks, last = brokers[closed - 1].disks
        brokers[closed - 1] = replace(brokers[closed - 1], disks=(*open_disks, replace(last, can_receive=False)))
    partitions = []
    ids = [each.id for each in brokers]
    for number in range(draw(st.integers(0, 25))):
        replicas = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=min(3, count), unique=True))
        partitions.append(
            partition(
                f"t{number % 3}",
                number,
                draw(st.integers(0, 120)),
                replicas,
                rate=float(draw(st.integers(0, 50))),
                disks={each: draw(st.integers(0, len(brokers[each - 1].disks) - 1)) for each in replicas},
                fixed="its topic was left out" if draw(st.integers(0, 19)) == 0 else "",
            )
        )
    return model(brokers, partitions, rates=draw(st.booleans()))


def has_no_giant(cluster: Model, removed: Collection[int] = ()) -> bool:
    """Return whether each partition is at most half of what the smallest broker holds when all disks are equally full.

    A larger one fits nowhere before many others have made room for it. Of drawn clusters with one, about 1 in 50 ends
    a fifth to a third above the floor; without, none of some hundred did.
    """
    size = sum(each.size * len(each.replicas) for each in cluster.partitions)
    weights = [each.weight for each in cluster.brokers if each.id not in removed]
    return 2 * max(each.size for each in cluster.partitions) <= size * min(weights) / sum(weights)


def grown_model(
    seed: int, *, brokers: int, partitions: int, factor: int = 3, racks: int = 3, joined: int = 0, mixed: bool = False
) -> Model:
    """A cluster as Kafka places topics, by number and in turn. Sizes and rates differ by topic, less within one.

    `joined` brokers came later and are empty. With `mixed`, some disks are twice as large.
    """
    dice = random.Random(seed)
    made = []
    for number in range(1, brokers + joined + 1):
        size = (dice.choice([1, 2]) if mixed else 1) * (20 << 40)
        made.append(broker(number, rack=f"r{number % racks}" if racks > 1 else None, disks=[size]))
    old = made[:brokers]
    by_rack: dict[str | None, list[int]] = {}
    for each in old:
        by_rack.setdefault(each.rack, []).append(each.id)
    lists = list(by_rack.values())
    turn = [held[at] for at in range(max(map(len, lists))) for held in lists if at < len(held)]
    rack_of = {each.id: each.rack for each in old}
    found: list[ModelPartition] = []
    topic = 0
    while len(found) < partitions:
        log_size, log_rate = dice.gauss(22, 1.6), dice.gauss(12, 1.4)
        start, shift = dice.randrange(len(turn)), dice.randrange(len(turn))
        for number in range(min(dice.choice([3, 6, 12, 24, 48]), partitions - len(found))):
            first = (start + number) % len(turn)
            shift += first == 0
            others = [turn[(first + 1 + (shift + step) % (len(turn) - 1)) % len(turn)] for step in range(len(turn) - 1)]
            replicas = [turn[first]]
            for other in [*others, *others]:
                taken = {rack_of[each] for each in replicas}
                apart = rack_of[other] not in taken or len(taken) >= min(factor, len(lists)) or racks == 1
                if len(replicas) < factor and other not in replicas and apart:
                    replicas.append(other)
            found.append(
                partition(
                    f"t{topic}",
                    number,
                    int(2.718 ** (log_size + dice.gauss(0, 0.3))),
                    replicas,
                    rate=2.718 ** (log_rate + dice.gauss(0, 0.3)),
                )
            )
        topic += 1
    return model(made, found, rates=True)


def lumpy_model(seed: int) -> Model:
    """A small cluster of a few topics, each with partitions of nearly one size, on some of the brokers only.

    Few replicas decide here, so that a search which moves one after the other ends early.
    """
    dice = random.Random(seed)
    count, racks = dice.randint(3, 6), dice.choice([1, 1, 2, 3])
    factor = min(dice.choice([1, 2, 2, 3]), count)
    brokers = [broker(number, rack=f"r{number % racks}" if racks > 1 else None) for number in range(1, count + 1)]
    partitions = []
    for topic in range(dice.randint(1, 4)):
        size, uneven = dice.randint(5, 200) << 20, dice.choice([0.0, 0.0, 0.1, 0.5])
        held_by = dice.sample(range(1, count + 1), dice.randint(factor, count))
        replicas = dice.randint(1, factor)
        for number in range(dice.randint(2, 10)):
            each = int(size * (1 + dice.random() * uneven))
            partitions.append(partition(f"t{topic}", number, each, dice.sample(held_by, replicas)))
    return model(brokers, partitions)


def with_giant(cluster: Model, times: float) -> Model:
    """The first partition becomes so many times as large as what a broker holds on average."""
    mean = sum(each.size * len(each.replicas) for each in cluster.partitions) / len(cluster.brokers)
    giant = replace(cluster.partitions[0], size=int(times * mean))
    return model(cluster.brokers, [giant, *cluster.partitions[1:]], rates=True)


def facts_of(cluster: Model) -> ClusterFacts:
    """What reading such a cluster gives. Everything is in sync, and nothing else is on the disks."""
    held: dict[tuple[int, int], list[ReplicaInfo]] = {}
    topics: dict[str, list[PartitionInfo]] = {}
    for each in cluster.partitions:
        topics.setdefault(each.topic, []).append(
            PartitionInfo(
                partition=each.partition,
                leader=each.leader,
                leader_epoch=1,
                replicas=each.replicas,
                in_sync=each.in_sync,
            )
        )
        replica = ReplicaInfo(topic=each.topic, partition=each.partition, bytes=each.size, offset_lag=0)
        for number in each.replicas:
            held.setdefault((number, each.disks.get(number, 0)), []).append(replica)
    brokers = tuple(
        BrokerInfo(
            id=each.id,
            host=f"kafka-{each.id}",
            port=9092,
            rack=each.rack,
            is_fenced=each.is_fenced,
            log_dirs=tuple(_log_dir(disk, held.get((each.id, at), [])) for at, disk in enumerate(each.disks)),
        )
        for each in cluster.brokers
    )
    return ClusterFacts(
        at_ms=0,
        cluster_id=cluster.cluster_id,
        controller_id=1,
        parts=(Part.TOPICS, Part.LOG_DIRS, Part.MOVES),
        brokers=brokers,
        topics=tuple(
            TopicInfo(name=name, topic_id=name, is_internal=False, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def _log_dir(disk: Disk, replicas: list[ReplicaInfo]) -> LogDirInfo:
    total = disk.total or 0
    usable = total - sum(each.bytes for each in replicas)
    return LogDirInfo(path=disk.path, total_bytes=total, usable_bytes=usable, replicas=tuple(replicas))


def check_plan(
    cluster: Model,
    plan: MovePlan,
    goals: Goals,
    *,
    factors: Mapping[str, int] | None = None,
    removed: Collection[int] = (),
) -> None:
    """What holds of every plan, whatever was asked for."""
    left = {each.rack for each in cluster.brokers if each.can_receive and each.id not in removed}
    for move in plan.moves:
        before = cluster.by_place[move.place]
        assert not before.fixed, f"{move.place} may not move: {before.fixed}"
        assert move.old == before.replicas
        assert len(set(move.new)) == len(move.new), f"{move.place} is twice on a broker: {move.new}"
        assert len(move.new) == (factors or {}).get(move.topic, len(move.old))
        racks = {cluster.rack_of(each) for each in move.new}
        wanted = min(len(move.new), len({cluster.rack_of(each) for each in move.old}))
        if set(removed) & set(move.old):
            wanted = min(wanted, len(left))
        assert len(racks) >= wanted, f"{move.place} loses a rack: {move.old} → {move.new}"
        assert all(cluster.by_id[each].can_receive for each in move.adding)
        for number, path in zip(move.new, move.log_dirs, strict=True):
            chosen = [disk.can_receive for disk in cluster.by_id[number].disks if disk.path == path]
            assert path == "any" or chosen == [True], f"{move.place} is put in {path} of broker {number}"
        assert move.why
        assert not (move.new == move.old and not move.disk_moves), f"{move.place} does not change"
    check_fill(cluster, plan, goals)


def check_fill(cluster: Model, plan: MovePlan, goals: Goals) -> None:
    """No disk is above its fill limit at any moment, in whatever order the moves of a batch end."""
    rooms = Rooms(cluster, goals.pace)
    for batch in range(1, plan.batches + 1):
        moves = [move for move in plan.moves if move.batch == batch]
        for move in moves:
            rooms.begin(move)
        for move in moves:
            for disk in rooms.targets(move):
                assert not move.bytes or rooms.held[disk] <= rooms.room[disk], (
                    f"{disk} is too full during batch {batch}"
                )
        for move in moves:
            rooms.end(move)
