"""Series of brokers, disks, topics and clients, from the facts of one reading. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.admin.facts.cluster_facts import ClusterFacts, Part, TopicInfo
from ottla.admin.facts.shared_disks import directories_by_disk
from ottla.exporter.prometheus_text import Series
from ottla.topics import TopicPartition

DEFAULT_ENTITY = "<default>"


def cluster_series(facts: ClusterFacts) -> Iterator[Series]:
    """Yield the series of the cluster as a whole."""
    yield "ottla_cluster_info", (facts.cluster_id,), 1
    yield "ottla_cluster_has_controller", (), int(facts.controller_id is not None)
    yield "ottla_cluster_topics", (), len(facts.topics)
    yield "ottla_cluster_partitions", (), sum(len(topic.partitions) for topic in facts.topics)
    if _is_read(facts, Part.MOVES):
        yield "ottla_cluster_moving_partitions", (), len(facts.moves)
    if facts.quorum is not None:
        leader = facts.quorum.leader
        ends = {node.node_id: node.log_end_offset for node in facts.quorum.nodes}
        yield "ottla_cluster_quorum_voters", (), len(facts.quorum.voters)
        for node in facts.quorum.nodes:
            behind = max(0, ends.get(leader, node.log_end_offset) - node.log_end_offset)
            role = "voter" if node.is_voter else "observer"
            yield "ottla_cluster_quorum_lag_records", (str(node.node_id), role), behind


def broker_series(facts: ClusterFacts) -> Iterator[Series]:
    """Yield the series of brokers and their disks. A broker that is away counts, if a replica is assigned to it."""
    leaders: dict[int, int] = {}
    preferred: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in facts.topics:
        for each in topic.partitions:
            if each.leader is not None:
                leaders[each.leader] = leaders.get(each.leader, 0) + 1
            for broker in each.replicas:
                replicas[broker] = replicas.get(broker, 0) + 1
            if each.replicas:
                preferred[each.replicas[0]] = preferred.get(each.replicas[0], 0) + 1
    up = {broker.id: not broker.is_fenced and broker.unreachable is None for broker in facts.brokers}
    for node in sorted(facts.broker_ids | replicas.keys()):
        labels = (str(node),)
        yield "ottla_cluster_broker_up", labels, int(up.get(node, False))
        yield "ottla_cluster_broker_leaders", labels, leaders.get(node, 0)
        yield "ottla_cluster_broker_replicas", labels, replicas.get(node, 0)
        yield "ottla_cluster_broker_preferred_leaders", labels, preferred.get(node, 0)
    for info in facts.brokers:
        for log_dir in info.log_dirs or ():
            place = (str(info.id), log_dir.path)
            yield "ottla_cluster_log_dir_online", place, int(log_dir.error is None)
            if log_dir.error is None:
                yield "ottla_cluster_log_dir_size_bytes", place, log_dir.replica_bytes
        for first, *_ in directories_by_disk(info):
            if first.total_bytes and first.usable_bytes is not None:
                yield "ottla_cluster_disk_size_bytes", (str(info.id), first.path), first.total_bytes
                yield "ottla_cluster_disk_usable_bytes", (str(info.id), first.path), first.usable_bytes


def topic_series(facts: ClusterFacts, min_in_sync: Mapping[str, int]) -> Iterator[Series]:
    """Yield the series of topics. `min_in_sync` is the setting of each topic, as far as it is known."""
    for topic in facts.topics:
        labels = (topic.name,)
        yield "ottla_cluster_topic_partitions", labels, len(topic.partitions)
        yield "ottla_cluster_topic_replication_factor", labels, topic.replication_factor
        offline = sum(each.leader is None for each in topic.partitions)
        under_replicated = sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions)
        yield "ottla_cluster_topic_offline_partitions", labels, offline
        yield "ottla_cluster_topic_under_replicated_partitions", labels, under_replicated
        least = min_in_sync.get(topic.name)
        if least is not None:
            below = sum(len(each.in_sync) < least for each in topic.partitions)
            yield "ottla_cluster_topic_under_min_isr_partitions", labels, below
        size = facts.topic_bytes(topic.name)
        if size is not None:
            yield "ottla_cluster_topic_size_bytes", labels, size
        records = [each.records for each in topic.partitions if each.records is not None]
        if records:
            yield "ottla_cluster_topic_records", labels, sum(records)


def partition_series(facts: ClusterFacts) -> Iterator[Series]:
    """Yield the series of single partitions."""
    sizes = facts.partition_bytes
    for topic in facts.topics:
        for each in topic.partitions:
            labels = (topic.name, str(each.partition))
            yield "ottla_cluster_partition_leader", labels, -1 if each.leader is None else each.leader
            yield "ottla_cluster_partition_replicas", labels, len(each.replicas)
            yield "ottla_cluster_partition_in_sync_replicas", labels, len(each.in_sync)
            if each.log_start is not None:
                yield "ottla_cluster_partition_start_offset", labels, each.log_start
            if each.high_watermark is not None:
                yield "ottla_cluster_partition_end_offset", labels, each.high_watermark
            size = sizes.get(TopicPartition(topic.name, each.partition))
            if size is not None:
                yield "ottla_cluster_partition_size_bytes", labels, size


def client_series(facts: ClusterFacts) -> Iterator[Series]:
    """Yield the series of quotas and transactions."""
    for quota in facts.quotas or ():
        entity = tuple(_entity(quota.entity, kind) for kind in ("user", "client-id", "ip"))
        yield "ottla_cluster_quota", (*entity, quota.name), quota.value
    if _is_read(facts, Part.TRANSACTIONS):
        ages_ms = [
            (facts.at_ms - each.started_ms, each.timeout_ms)
            for each in facts.transactions
            if each.started_ms is not None
        ]
        oldest_ms = max((age_ms for age_ms, _ in ages_ms), default=0)
        yield "ottla_cluster_open_transactions", (), len(ages_ms)
        yield "ottla_cluster_oldest_transaction_seconds", (), max(0, oldest_ms) / 1000
        yield "ottla_cluster_overdue_transactions", (), sum(age_ms > limit for age_ms, limit in ages_ms)


def hidden_series(facts: ClusterFacts) -> Iterator[Series]:
    """Yield how much could not be read, for each part that was asked for."""
    counts: dict[tuple[str, str], int] = {}
    for part in facts.parts:
        for reason in ("not authorized", "unavailable"):
            counts[part.value, reason] = 0
    for each in facts.not_read:
        place = each.part.value, "not authorized" if each.is_denied else "unavailable"
        counts[place] = counts.get(place, 0) + 1
    for place, count in counts.items():
        yield "ottla_exporter_hidden", place, count


def min_in_sync_of(topics: tuple[TopicInfo, ...]) -> dict[str, int]:
    """Return `min.insync.replicas` of each topic of which it was read."""
    found = ((topic.name, topic.number("min.insync.replicas")) for topic in topics)
    return {name: least for name, least in found if least is not None}


def _entity(entity: Mapping[str, str | None], kind: str) -> str:
    if kind not in entity:
        return ""
    name = entity[kind]
    return DEFAULT_ENTITY if name is None else name


def _is_read(facts: ClusterFacts, part: Part) -> bool:
    """Return whether every subject of a part was read: a sum over the others would be too low."""
    return part in facts.parts and all(each.part is not part for each in facts.not_read)
