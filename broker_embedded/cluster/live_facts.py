"""Builds `EmbeddedClusterFacts` from the brokers of this process. Read-only; runs on the loop of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import permutations

from broker_embedded.cluster.facts import (
    DiskFaultFacts,
    EmbeddedClusterFacts,
    FaultFacts,
    GroupFacts,
    NodeFacts,
    NodeState,
    OngoingTransaction,
    PartitionFacts,
    ReplicaFacts,
    ShareFacts,
    ShareRunFacts,
)
from broker_embedded.cluster.faults import Disks, Fault, Faults, Links
from broker_embedded.cluster.metrics import BrokerFigures
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.image import ClusterImage, PartitionImage, newest
from broker_embedded.replication.follower_state import NEVER_MS
from broker_embedded.replication.partition import Partition, effective_min_isr
from broker_embedded.server.broker import Broker
from broker_embedded.server.requests.registry import TABLE

_NAMED_SETTINGS = ("broker.session.timeout.ms", "peer.death.detection.enable", "replica.lag.time.max.ms")


def gather(
    *,
    states: Mapping[int, NodeState],
    brokers: Mapping[int, Broker],
    addresses: Mapping[int, str],
    voters: Iterable[int],
    controller: int,
    faults: Faults,
    links: Links,
    disks: Disks,
) -> EmbeddedClusterFacts:
    """Gather the facts. `states`: every node there is; `brokers`: those in memory, which are running or paused."""
    image = newest(broker.metadata.image for broker in brokers.values())
    names = cache(lambda: _transactional_ids(brokers.values()))
    return EmbeddedClusterFacts(
        cluster_id=image.cluster_id,
        controller=controller,
        nodes={node: _node(node, state, image, brokers, addresses, set(voters)) for node, state in states.items()},
        partitions={
            (name, number): _partition(TopicPartition(name, number), state, brokers, names)
            for name, topic in image.topics.items()
            for number, state in topic.partitions.items()
        },
        groups={group.group: group for broker in brokers.values() for group in _groups(broker)},
        cut_links={
            (source, target): problem
            for source, target in permutations(states, 2)
            if (problem := links.problem(source, target)) is not None
        },
        slow_links={
            (source, target): delay_ms
            for source, target in permutations(states, 2)
            if (delay_ms := links.delay_ms(source, target))
        },
        faults=tuple(_fault(fault) for fault in faults.list() if fault.is_armed),
        disk_faults=tuple(
            DiskFaultFacts(broker=shown["broker"], kind=shown["kind"], path=shown["path"]) for shown in disks.to_json()
        ),
        settings=_settings(brokers.values()),
    )


def figures_of(broker: Broker) -> BrokerFigures:
    """Return a broker's counters, and the sizes of its logs."""
    replicas = broker.replicas
    return BrokerFigures(
        connections=len(broker.server.connections),
        fetches_waiting=len(replicas.fetches),
        produces_waiting=len(replicas.produces),
        isr_shrinks=replicas.in_sync.shrinks,
        isr_expands=replicas.in_sync.expansions,
        requests={
            TABLE[key].key.name: (count, size) for key, (count, size) in broker.dispatcher.tallies.items() if count
        },
        log_sizes={
            (each.topic_partition.topic, each.topic_partition.partition): each.log.size_bytes()
            for each in replicas.partitions()
        },
    )


def _node(
    node: int,
    state: NodeState,
    image: ClusterImage,
    brokers: Mapping[int, Broker],
    addresses: Mapping[int, str],
    voters: set[int],
) -> NodeFacts:
    registered = image.brokers.get(node)
    broker = brokers.get(node)
    return NodeFacts(
        node=node,
        state=state,
        address=addresses.get(node, ""),
        is_fenced=registered is None or registered.fenced,
        is_voter=node in voters,
        offline_dirs={} if broker is None else dict(broker.logs.directories.offline),
    )


def _partition(
    name: TopicPartition,
    state: PartitionImage,
    brokers: Mapping[int, Broker],
    transactional_ids: Callable[[], Mapping[int, str]],
) -> PartitionFacts:
    held = {
        node: partition
        for node in state.replicas
        if (broker := brokers.get(node)) is not None and (partition := broker.replicas.partition(name)) is not None
    }
    led = held.get(state.leader)
    pending = None if led is None or led.leading is None else led.leading.pending
    config = next((broker.replicas.topic_config(name.topic) for broker in brokers.values()), None)
    return PartitionFacts(
        topic=name.topic,
        partition=name.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=state.isr,
        min_insync_replicas=1 if config is None else effective_min_isr(config, len(state.replicas)),
        allows_unclean_election=False if config is None else config.unclean_leader_election_enable,
        pending_isr=None if pending is None else pending.nodes,
        copies={node: _copy(node, partition, led, brokers[node]) for node, partition in held.items()},
        open_transactions=() if led is None else _open_transactions(led, brokers[state.leader], transactional_ids),
        shares=() if led is None else _shares(led, brokers[state.leader]),
    )


def _copy(node: int, partition: Partition, led: Partition | None, broker: Broker) -> ReplicaFacts:
    log = partition.log
    behind_for_ms: int | None = None
    if led is not None and led.leading is not None and node in led.leading.followers:
        follower = led.leading.followers[node]
        if follower.log_end_offset < led.log.log_end_offset and follower.last_caught_up_ms != NEVER_MS:
            behind_for_ms = max(0, broker.clock.monotonic_ms() - follower.last_caught_up_ms)
    return ReplicaFacts(
        node=node,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        leader_epoch=partition.leader_epoch,
        behind_for_ms=behind_for_ms,
        fetch_error=broker.replicas.fetch_problem(partition),
        offline_reason=log.offline_reason,
        directory=log.directory,
    )


def _open_transactions(
    led: Partition, broker: Broker, transactional_ids: Callable[[], Mapping[int, str]]
) -> tuple[OngoingTransaction, ...]:
    now_ms = broker.clock.now_ms()
    return tuple(
        OngoingTransaction(
            producer_id=each.producer_id,
            first_offset=each.current_transaction_start_offset,
            transactional_id=transactional_ids().get(each.producer_id),
            open_for_ms=max(0, now_ms - each.last_timestamp_ms) if each.last_timestamp_ms >= 0 else None,
        )
        for each in led.log.active_producers()
        if each.current_transaction_start_offset >= 0
    )


def _shares(led: Partition, broker: Broker) -> tuple[ShareFacts, ...]:
    now_ms = broker.clock.monotonic_ms()
    found: list[ShareFacts] = []
    for host in broker.shares.hosts_of(led.topic_partition):
        share, group = host.partition, host.key.group_id
        if share is None:
            continue
        runs = tuple(
            ShareRunFacts(
                first=run.first,
                last=run.last,
                state=run.standing.state.name.lower(),
                delivery_count=run.standing.delivery_count,
                member_id=run.standing.member_id,
                ends_in_ms=max(0, run.deadline_ms - now_ms) if run.standing.member_id else None,
            )
            for run in share.runs
        )
        found.append(
            ShareFacts(
                group=group,
                start_offset=share.start_offset,
                end_offset=share.end_offset,
                max_locks=share.settings.max_locks,
                delivery_limit=share.settings.delivery_limit,
                sessions=sum(session.key.group_id == group for session in broker.shares.sessions),
                runs=runs,
            )
        )
    return tuple(sorted(found, key=lambda each: each.group))


def _transactional_ids(brokers: Iterable[Broker]) -> dict[int, str]:
    """Return producer id -> transactional id, as loaded coordinators have them."""
    return {
        each.producer_id: each.transactional_id
        for broker in brokers
        for shard in broker.transactions.runtime.active_shards()
        for each in shard.transactions()
    }


def _groups(broker: Broker) -> list[GroupFacts]:
    try:
        listed = broker.groups.list_groups()
    except BrokerError:
        return []  # being replayed
    return [
        GroupFacts(
            group=each.group_id,
            state=each.state,
            members=broker.groups.shard_of_any(each.group_id).admin.member_count(each.group_id),
            protocol_type=each.protocol_type,
        )
        for each in listed
    ]


def _fault(fault: Fault) -> FaultFacts:
    shown = fault.to_json()
    return FaultFacts(
        fault_id=fault.id,
        description=fault.description,
        hits=fault.hits,
        held=fault.held,
        api=shown.get("api"),
        broker=shown.get("broker"),
        topic=shown.get("topic"),
        partition=shown.get("partition"),
    )


def _settings(brokers: Iterable[Broker]) -> dict[str, str]:
    for broker in brokers:
        described = {name: getattr(broker.config, name.replace(".", "_"), None) for name in _NAMED_SETTINGS}
        return {name: str(value) for name, value in described.items() if value is not None}
    return {}
