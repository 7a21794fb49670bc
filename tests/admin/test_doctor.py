"""Every check speaks on one cluster made by hand and is silent on a good one; and the page of all of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import App, RetryTopics
from ottla.admin import ClusterFacts, NotRead, Part, SettingInfo, dump_facts, load_facts
from ottla.admin.declared.apply_plan import Kind, PlannedChange
from ottla.admin.doctor import (
    AppDeclaration,
    AppTopic,
    Evidence,
    Finding,
    Limits,
    Severity,
    all_checks,
    chosen,
    declaration_of,
    dump_baseline,
    examine,
    load_baseline,
    without_accepted,
)
from ottla.admin.doctor.finding import DAY_MS, HOUR_MS, QueueDeclaration, format_bytes, format_duration
from ottla.admin.doctor.page import page
from ottla.admin.facts.cluster_facts import (
    AclInfo,
    BrokerInfo,
    CommittedOffset,
    GroupInfo,
    LogDirInfo,
    MemberInfo,
    MoveInfo,
    PartitionInfo,
    QuorumInfo,
    QuotaInfo,
    ReplicaInfo,
    TopicInfo,
    TransactionInfo,
    VoterInfo,
)
from ottla.errors import ConfigError, InputError
from ottla.exporter.cluster_readings import kept_for_comparison
from ottla.records import TopicPartition

NOW_MS = 1_800_000_000_000
GIB = 1 << 30
YEARS_MS = 100 * 365 * DAY_MS

SCHEDULE = {"retention_ms": "-1", "message_timestamp_type": "LogAppendTime"}
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": str(DAY_MS),
    "flush.messages": str((1 << 63) - 1),
    "flush.ms": str((1 << 63) - 1),
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": str((1 << 63) - 1),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "2",
    "retention.bytes": "-1",
    "retention.ms": str(7 * DAY_MS),
    "segment.bytes": str(GIB),
    "segment.ms": str(7 * DAY_MS),
    "unclean.leader.election.enable": "false",
}
BROKER_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "true",
    "default.replication.factor": "3",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "log.dirs": "/data/kafka",
    "log.message.timestamp.after.max.ms": "3600000",
    "message.max.bytes": "1048588",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.max.bytes": "1048576",
    "transaction.state.log.replication.factor": "3",
}


def settings(defaults: Mapping[str, str], changes: Mapping[str, str], own: str) -> dict[str, SettingInfo]:
    found = {name: SettingInfo(value=value, source="DEFAULT_CONFIG") for name, value in defaults.items()}
    return found | {name: SettingInfo(value=value, source=own) for name, value in changes.items()}


def partition(number: int = 0, **changes: Any) -> PartitionInfo:
    replicas = tuple((number + place) % 3 + 1 for place in range(3))
    fact = PartitionInfo(
        partition=number,
        leader=replicas[0],
        leader_epoch=1,
        replicas=replicas,
        in_sync=replicas,
        log_start=0,
        high_watermark=1_000,
        last_stable_offset=1_000,
        newest_timestamp_ms=NOW_MS - 5,
        newest_timestamp_offset=999,
    )
    return replace(fact, **changes)


def topic(name: str = "orders", *, of: int = 3, partitions: Any = None, **changed: str) -> TopicInfo:
    return TopicInfo(
        name=name,
        topic_id=name,
        is_internal=name.startswith("__"),
        partitions=tuple(partitions or (partition(number) for number in range(of))),
        settings=settings(
            TOPIC_SETTINGS, {key.replace("_", "."): value for key, value in changed.items()}, "DYNAMIC_TOPIC_CONFIG"
        ),
    )


def log_dir(*replicas: tuple[str, int, int], path: str = "/data/kafka", **changes: Any) -> LogDirInfo:
    made = tuple(ReplicaInfo(topic=name, partition=number, bytes=size, offset_lag=0) for name, number, size in replicas)
    given = {"path": path, "total_bytes": 100 * GIB, "usable_bytes": 50 * GIB, "replicas": made}
    return LogDirInfo(**{**given, **changes})


EVERYTHING = tuple(("orders", number, GIB) for number in range(3))


def broker(number: int, *dirs: LogDirInfo, setting: Mapping[str, str] | None = None, **changes: Any) -> BrokerInfo:
    fact = BrokerInfo(
        id=number,
        host=f"kafka-{number}",
        port=9092,
        rack="abc"[number - 1 : number] or "d",
        answers_as="cluster",
        settings=settings(BROKER_SETTINGS, setting or {}, "STATIC_BROKER_CONFIG"),
        log_dirs=dirs or (log_dir(*EVERYTHING),),
        features={"metadata.version": (7, 27)},
    )
    return replace(fact, **changes)


def member(number: int, *partitions: int) -> MemberInfo:
    return MemberInfo(
        member_id=f"m-{number}",
        instance_id=None,
        client_id="billing",
        host="/10.0.0.1",
        partitions=tuple(TopicPartition("orders", each) for each in partitions),
    )


def group(*offsets: int, **changes: Any) -> GroupInfo:
    fact = GroupInfo(
        group_id="billing",
        type="Classic",
        state="Stable",
        coordinator=1,
        assignor="cooperative-sticky",
        members=(member(1, 0, 1), member(2, 2)),
        offsets=tuple(
            CommittedOffset(topic="orders", partition=number, offset=offset) for number, offset in enumerate(offsets)
        ),
    )
    return replace(fact, **changes)


def voters(*numbers: int, nodes: int = 3, behind: int = 0) -> QuorumInfo:
    return QuorumInfo(
        leader=1,
        leader_epoch=1,
        high_watermark=5_000,
        nodes=tuple(
            VoterInfo(node_id=each, is_voter=each in numbers, log_end_offset=5_000 - (behind if each == 2 else 0))
            for each in range(1, nodes + 1)
        ),
    )


GOOD = ClusterFacts(
    at_ms=NOW_MS,
    cluster_id="cluster",
    controller_id=1,
    parts=tuple(Part),
    brokers=(broker(1), broker(2), broker(3)),
    topics=(topic(),),
    groups=(group(1_000, 1_000, 1_000),),
    quorum=voters(1, 2, 3),
    finalized_features={"metadata.version": 27},
    acls=(),
    quotas=(
        QuotaInfo(entity={"user": "a"}, name="producer_byte_rate", value=10_485_760.0),
        QuotaInfo(entity={"ip": None}, name="connection_creation_rate", value=10.0),
    ),
)
GOOD_APP = AppDeclaration(
    name="billing",
    groups={"billing": ("orders",)},
    concurrency={"billing": 1},
    topics=(AppTopic(topic="orders", use="reads"), AppTopic(topic="orders", use="writes")),
    consumer={"group.protocol": "classic"},
    producer={"max.request.size": 1_048_576, "batch.size": 16_384},
)


def earlier(facts: ClusterFacts = GOOD, *, by_ms: int = HOUR_MS, **changes: Any) -> ClusterFacts:
    return replace(facts, **{"at_ms": NOW_MS - by_ms, **changes})


def topics(*all_of_them: TopicInfo) -> dict[str, Any]:
    return {"topics": all_of_them}


def brokers(*changed: BrokerInfo) -> dict[str, Any]:
    by_id = {each.id: each for each in (*GOOD.brokers, *changed)}
    return {"brokers": tuple(by_id[number] for number in sorted(by_id))}


def every_broker(**setting: str) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in setting.items()}
    return {"brokers": tuple(broker(number, setting=named) for number in (1, 2, 3))}


class Case(NamedTuple):
    id: str
    says: str
    facts: Mapping[str, Any] = MappingProxyType({})
    earlier: tuple[dict[str, Any], ...] = ()
    app: AppDeclaration | None = None
    severity: Severity | None = None
    limits: Limits = Limits()
    drift: tuple[PlannedChange, ...] | None = None


def one_copy(number: int = 0, **changes: Any) -> PartitionInfo:
    return partition(number, **{"replicas": (1,), "in_sync": (1,), "leader": 1, **changes})


def inherits(fact: TopicInfo, **of_brokers: str) -> TopicInfo:
    """A topic that has these settings of its brokers."""
    named = {name.replace("_", "."): value for name, value in of_brokers.items()}
    return replace(fact, settings={**fact.settings, **settings({}, named, "DYNAMIC_DEFAULT_BROKER_CONFIG")})


def compact(**changed: str) -> TopicInfo:
    return topic(cleanup_policy="compact", **changed)


QUEUE_APP = replace(
    GOOD_APP,
    groups={"jobs": ("orders",)},
    concurrency={"jobs": 4},
    queues={"jobs": QueueDeclaration(max_attempts=5, start="earliest")},
)


WORKER = replace(
    QUEUE_APP,
    topics=(AppTopic(topic="orders", use="reads"), AppTopic(topic="orders.dlq", use="dead letters", of="orders")),
    consumer={"sasl.username": "worker"},
    producer={"sasl.username": "worker"},
)


def allow(operation: str, resource: str, name: str, **changes: str) -> AclInfo:
    acl = AclInfo(
        resource=resource,
        name=name,
        pattern="literal",
        principal="User:worker",
        host="*",
        operation=operation,
        permission="allow",
    )
    return replace(acl, **changes)


def share_group(*, limit: str = "6", start: str = "earliest", source: str = "DEFAULT_CONFIG") -> dict[str, Any]:
    """The group of `QUEUE_APP` with these settings, beside the one of the good cluster."""
    settings = {
        "share.delivery.count.limit": SettingInfo(value=limit, source=source),
        "share.auto.offset.reset": SettingInfo(value=start, source="DYNAMIC_GROUP_CONFIG"),
        "share.partition.max.record.locks": SettingInfo(value="2000", source="DEFAULT_CONFIG"),
    }
    jobs = GroupInfo(group_id="jobs", type="Share", state="Stable", coordinator=1, members=(), settings=settings)
    return {"groups": (*GOOD.groups, jobs)}


CASES = [
    Case("REP01", "orders has 1 replica on a cluster of 3", topics(topic(partitions=[one_copy()]))),
    Case("REP02", "brokers 1, 2, 3", every_broker(auto_create_topics_enable="true", default_replication_factor="1")),
    Case(
        "REP03",
        "odd has replication factor 2 where others have 3",
        topics(
            *(topic(f"orders-{number}") for number in range(6)),
            topic("odd", partitions=[partition(replicas=(1, 2), in_sync=(1, 2))]),
        ),
    ),
    Case("REP04", "min.insync.replicas 3 and replication factor 3", topics(topic(min_insync_replicas="3"))),
    Case("REP05", "3 replicas and min.insync.replicas 1", topics(topic(min_insync_replicas="1"))),
    Case(
        "REP06",
        "unclean.leader.election.enable=true (DYNAMIC_TOPIC_CONFIG)",
        topics(topic(unclean_leader_election_enable="true")),
    ),
    Case(
        "REP07",
        "__consumer_offsets has 1 replicas",
        topics(topic(), topic("__consumer_offsets", partitions=[one_copy()])),
        severity=Severity.ERROR,
    ),
    Case("REP07", "transaction.state.log.replication.factor is below 3", brokers(
        broker(2, setting={"transaction.state.log.replication.factor": "1"}))),
    Case("REP08", "brokers 2 have no broker.rack", brokers(broker(2, rack=None))),
    Case("REP08", "partitions 0, 1, 2 are in one rack", {
        "brokers": (broker(1, rack="a"), broker(2, rack="a"), broker(3, rack="a"), broker(4, rack="b"))}),
    Case("AVL01", "orders-0 has no leader and waits for broker 2 (alive)", topics(
        topic(partitions=[partition(leader=None, in_sync=(2,))]))),
    Case("AVL02", "1 replicas in sync and min.insync.replicas 2", topics(topic(partitions=[partition(in_sync=(1,))]))),
    Case("AVL02", "brokers 3 stay out of sync", topics(topic(partitions=[partition(in_sync=(1, 2))])), (
        topics(topic(partitions=[partition(in_sync=(1, 2))])),), severity=Severity.WARNING),
    Case("AVL03", "took /data/kafka offline (KAFKA_STORAGE_ERROR); 1 replicas", {
        **brokers(broker(2, log_dir(error="KAFKA_STORAGE_ERROR", total_bytes=None))),
        **topics(topic(partitions=[partition(offline=(2,), in_sync=(1, 3))]))}),
    Case("AVL04", "broker 2 is the last in sync, is alive, and has no copy", {
        **brokers(broker(2, log_dir())), **topics(topic(partitions=[partition(leader=None, in_sync=(2,))]))}),
    Case("AVL05", "broker 9, which is not registered", topics(topic(partitions=[partition(replicas=(1, 2, 9))]))),
    Case("AVL06", "kafka-2:9092: refused", brokers(broker(2, unreachable="refused", answers_as=None))),
    Case("AVL06", "where cluster 'other' answers", brokers(broker(2, answers_as="other"))),
    Case("AVL07", "2 voters on 3 nodes survive the loss of 0", {"quorum": voters(1, 2)}),
    Case("AVL07", "voter 2 is 2,000 records behind", {"quorum": voters(1, 2, 3, behind=2_000)}),
    Case("AVL07", "finalized at 20, and all brokers support 27", {"finalized_features": {"metadata.version": 20}},
         severity=Severity.NOTE),
    Case("STO01", "retention.bytes 50.0 GiB per partition: with 9 replicas it is 450.0 GiB", topics(
        topic(retention_bytes=str(50 * GIB)))),
    Case("STO01", "no retention.bytes, and grows to", topics(topic(partitions=[partition(high_watermark=10**7)],
         retention_ms=str(YEARS_MS))), (
        {"brokers": tuple(broker(each, log_dir(("orders", 0, 5))) for each in (1, 2, 3))},)),
    Case("STO02", "used 95% of the disk", brokers(broker(2, log_dir(*EVERYTHING, usable_bytes=5 * GIB)))),
    Case("STO02", "it is full in 3 h", brokers(broker(2, log_dir(*EVERYTHING, usable_bytes=30 * GIB))), (
        brokers(broker(2, log_dir(*EVERYTHING, usable_bytes=40 * GIB))),), severity=Severity.ERROR),
    Case("STO03", "offset 881 is dated 2028-01-15", topics(topic(partitions=[
        partition(newest_timestamp_ms=NOW_MS + 365 * DAY_MS, newest_timestamp_offset=881)]))),
    Case("STO03", "ms after 1970", topics(topic(partitions=[partition(newest_timestamp_ms=(1 << 63) - 1)]))),
    Case("STO04", "3 brokers accept", every_broker(log_message_timestamp_after_max_ms=str((1 << 63) - 1))),
    Case("STO04", "orders accepts", topics(topic(message_timestamp_after_max_ms=str((1 << 63) - 1)))),
    Case("STO05", "keeps records for 24 h and a segment open for 7 d", topics(topic(retention_ms=str(DAY_MS)))),
    Case("STO05", "keeps 1.0 MiB and has segments of 1.0 GiB", topics(topic(retention_bytes=str(1 << 20)))),
    Case("STO06", "broker 1 keeps its logs in /tmp/kafka-logs", every_broker(log_dirs="/data,/tmp/kafka-logs")),
    Case("STO07", "orders has no limit of time and none of bytes", topics(topic(retention_ms="-1"))),
    Case("STO07", "2 topics (a, b) have the brokers' retention", topics(
        inherits(topic("a"), retention_ms="-1"), inherits(topic("b"), retention_ms="-1"))),
    Case("STO08", "min.cleanable.dirty.ratio is 1", topics(compact(min_cleanable_dirty_ratio="1.0"))),
    Case("STO08", "min.compaction.lag.ms is", topics(compact(min_compaction_lag_ms=str(YEARS_MS)))),
    Case("STO08", "all its records are in open segments", topics(compact(
        segment_ms=str(YEARS_MS), segment_bytes=str(2 * GIB)))),
    Case("STO08", "log.cleaner.enable is false on brokers 1, 2, 3: 1 topics", {
        **topics(compact()), **every_broker(log_cleaner_enable="false")}),
    Case("STO09", "keeps tombstones for 0 s", topics(compact(delete_retention_ms="0"))),
    Case("STO10", "begins a segment every 5 s (segment.ms): up to 120,960 segments", topics(topic(segment_ms="5000"))),
    Case("STO10", "has segments of 14 bytes", topics(topic(segment_bytes="14"))),
    Case("STO11", "orders has flush.messages=1", topics(topic(flush_messages="1"))),
    Case("STO11", "2 topics (a, b) have the brokers' log.flush.interval.ms below 1,000", topics(
        inherits(topic("a"), flush_ms="5"), inherits(topic("b"), flush_ms="5"))),
    Case("STO12", "orders has compression.type=zstd", topics(topic(compression_type="zstd"))),
    Case("STO12", "2 topics (a, b) have the brokers' compression.type=gzip", topics(
        inherits(topic("a"), compression_type="gzip"), inherits(topic("b"), compression_type="gzip"))),
    Case("MSG01", "1048588 on broker 1, 5 on broker 2", brokers(broker(2, setting={"message.max.bytes": "5"}))),
    Case("MSG01", "allows batches of 9,000,000 bytes", topics(topic(max_message_bytes="9000000")),
         severity=Severity.WARNING),
    Case("MSG02", "orders.dlq allows 5 bytes and orders 1,048,588", topics(
        topic(), topic("orders.dlq", max_message_bytes="5", retention_ms="-1"))),
    Case("MSG03", "max.request.size is 9,000,000 and orders takes 1,048,588", app=replace(
        GOOD_APP, producer={"max.request.size": 9_000_000})),
    Case("MSG03", "batch.size is 9,000,000", app=replace(GOOD_APP, producer={"batch.size": 9_000_000})),
    Case("BAL01", "broker 1 has 60% of the bytes (12.0 GiB)", {"brokers": (
        broker(1, log_dir(*[("orders", each, 4 * GIB) for each in range(3)])),
        broker(2, log_dir(("orders", 0, 4 * GIB))), broker(3, log_dir(("orders", 0, 4 * GIB))))}),
    Case("BAL02", "broker 4 has 0 bytes", brokers(broker(4, log_dir(usable_bytes=99 * GIB)))),
    Case("BAL03", "/new of broker 2 has 0 bytes", brokers(broker(2, log_dir(*EVERYTHING), log_dir(path="/new")))),
    Case("BAL04", "is off on 3 brokers", every_broker(auto_leader_rebalance_enable="false")),
    Case("BAL04", "2 of 3 partitions are not led", topics(topic(partitions=[
        partition(0), partition(1, leader=1), partition(2, leader=1)]))),
    Case("BAL05", "broker 1 takes 100% of all writes", {
        **topics(topic(partitions=[partition(each, leader=1, high_watermark=2_000) for each in range(3)]))},
        (topics(topic()),), limits=Limits(least_rate=1)),
    Case("BAL06", "orders-0 has 9.0 GiB", {
        **topics(topic(partitions=[one_copy()])),
        "brokers": (broker(1, log_dir(("orders", 0, 9 * GIB))), broker(2, log_dir()), broker(3, log_dir()))}),
    Case("BAL07", "broker 1 has 3 replicas", limits=Limits(replicas_per_broker=2)),
    Case("BAL08", "orders has 100,000 of its 100,002 records in partition 1, one of 3", topics(topic(partitions=[
        partition(0, high_watermark=1), partition(1, high_watermark=100_000), partition(2, high_watermark=1)]))),
    Case("MOV01", "orders-0 moves to broker 3 and copied nothing", {"moves": (
        MoveInfo(topic="orders", partition=0, replicas=(1, 2, 3), adding=(3,), removing=()),)}, ({"moves": (
            MoveInfo(topic="orders", partition=0, replicas=(1, 2, 3), adding=(3,), removing=()),)},)),
    Case("MOV02", "replicas of orders are throttled at 5.0 MiB per second", {
        **topics(topic(follower_replication_throttled_replicas="0:1")),
        **brokers(broker(2, setting={"follower.replication.throttled.rate": str(5 << 20)}))}),
    Case("GRP01", "was 0 records behind and is 4,000 behind now", {
        **topics(topic(of=1, partitions=[partition(high_watermark=5_000)])), "groups": (group(1_000),)}, ({},)),
    Case("GRP01", "makes no progress at orders-1 offset 500", {"groups": (group(900, 500),)}, (
        {"groups": (group(800, 500),)},)),
    Case("GRP02", "3 members on 3 partitions: 1 idle", {"groups": (
        group(1_000, members=(member(1, 0, 1), member(2, 2), member(3))),)}),
    Case("GRP03", "is empty, and its offsets of 2 partitions expire within 5 h", {
        **every_broker(offsets_retention_minutes="10080"),
        "groups": (group(state="Empty", members=(), offsets=tuple(CommittedOffset(
            topic="orders", partition=number, offset=1, kept_since_ms=NOW_MS - 7 * DAY_MS + hours * HOUR_MS)
            for number, hours in enumerate((5, 23, 25)))),)}),
    Case("GRP04", "missed 5 records of orders-0: they were deleted", {
        **topics(topic(partitions=[partition(log_start=10)])), "groups": (group(5),)}),
    Case("GRP04", "loses 500 unread records of orders-0 within 60 min", {
        **topics(topic(partitions=[partition(expires_within_hour=600)])), "groups": (group(100),)}),
    Case("GRP04", "loses 500 unread records of orders-0 within 24 h", {**topics(topic(partitions=[
        partition(expires_within_hour=100, expires_within_day=600)])), "groups": (group(100),)},
        severity=Severity.WARNING),
    Case("GRP05", "changed its state 3 times in 4 samples", earlier=(
        {"groups": (group(state="PreparingRebalance"),)}, {}, {"groups": (group(state="Empty"),)})),
    Case("GRP06", "21 members and the eager assignor 'range'", {"groups": (
        group(assignor="range", members=tuple(member(each, each) for each in range(21))),)}),
    Case("GRP07", "is committed at 1001 of orders-0, beyond the log's end 1000: its next member begins", {
        "groups": (group(1_001, state="Empty", members=()),)}),
    Case("GRP07", "is committed at 1001 of orders-0", {"groups": (group(1_001),)}, ({"groups": (group(1_001),)},)),
    Case("TXN01", "'pay' (Ongoing) is open for 24 h, its timeout is 60 s: readers of orders-0 at 9 wait", {
        **topics(topic(partitions=[partition(last_stable_offset=9)])),
        "transactions": (TransactionInfo(transactional_id="pay", producer_id=1, state="Ongoing", timeout_ms=60_000,
                                         started_ms=NOW_MS - DAY_MS, partitions=(TopicPartition("orders", 0),)),)}),
    Case("DLQ01", "orders.dlq has 7 dead letters of the last hour", topics(
        topic(), topic("orders.dlq", partitions=[partition(hour_ago_offset=993)], retention_ms="-1"))),
    Case("DLQ02", "keeps letters for 7 d and orders its records for 7 d", topics(topic(), topic("orders-dlq"))),
    Case("DLQ03", "orders.dead-letters (dead letters of orders) does not exist", app=replace(
        GOOD_APP, topics=(AppTopic(topic="orders.dead-letters", use="dead letters", of="orders"),))),
    Case("DLQ03", "orders.retry has 1 partitions and orders 3", topics(topic(), topic("orders.retry", of=1)),
         app=replace(GOOD_APP, topics=(AppTopic(topic="orders.retry", use="retries", of="orders"),))),
    Case("SCH01", "up to 64,000 delayed messages wait in ottla.schedule.default, and group", topics(
        topic(), topic("ottla.schedule.default", of=64, **SCHEDULE))),
    Case("SCH01", "7 delayed messages wait in ottla.schedule.billing, and group ottla.schedule.billing has no member", {
        **topics(topic(), replace(topic("ottla.schedule.billing", of=64, **SCHEDULE), waiting=7)),
        "groups": (group(group_id="ottla.schedule.billing", state="Empty", members=()),)}),
    Case("SCH02", "has retention.ms=604800000, and delayed messages need -1", topics(
        topic(), topic("ottla.schedule.default", of=64, **{**SCHEDULE, "retention_ms": str(7 * DAY_MS)}))),
    Case("SCH02", "has 3 partitions, and the wheel has 64 slots", topics(
        topic(), topic("ottla.schedule.default", **SCHEDULE))),
    Case("SCH03", "ottla.tasks.billing has recurring tasks, and group ottla.schedule.billing has no member", {
        **topics(topic(), topic("ottla.tasks.billing", of=1, cleanup_policy="compact")),
        "groups": (group(group_id="ottla.schedule.billing", state="Empty", members=()),)}),
    Case("QUO01", "client-id reports, user (default) has producer_byte_rate=100: clients", {"quotas": (
        QuotaInfo(entity={"user": None, "client-id": "reports"}, name="producer_byte_rate", value=100.0),)}),
    Case("SEC01", "3 brokers have no authorizer", every_broker(authorizer_class_name="")),
    Case("SEC01", "allows User:* everything on topic *", {"acls": (AclInfo(resource="topic", name="*",
         pattern="literal", principal="User:*", host="*", operation="all", permission="allow"),)}),
    Case("APP01", "payments, which it reads, does not exist", app=replace(
        GOOD_APP, topics=(AppTopic(topic="payments", use="reads"),)), severity=Severity.ERROR),
    Case("APP01", "5 processes of group billing share 3 partitions: 2 have nothing", app=replace(
        GOOD_APP, processes=5)),
    Case("APP01", "group.protocol is consumer, and the cluster serves classic", every_broker(
        group_coordinator_rebalance_protocols="classic"), app=replace(
        GOOD_APP, consumer={"group.protocol": "consumer"}), severity=Severity.ERROR),
    Case("APP01", "the assignor range, and those of group billing that run (2) use cooperative-sticky", app=replace(
        GOOD_APP, assignors={"billing": (("range",), ("range",))}), severity=Severity.ERROR),
    Case("APP01", "max_attempts=5 of the queue of group jobs is not below share.delivery.count.limit=5",
         share_group(limit="5", source="DYNAMIC_GROUP_CONFIG"), app=QUEUE_APP, severity=Severity.ERROR),
    Case("APP01", "raises the limit at its start, if it may", share_group(limit="5"), app=QUEUE_APP),
    Case("APP01", "group jobs has share.auto.offset.reset=latest", share_group(start="latest"), app=QUEUE_APP),
    Case("APP01", "handle 8,000 jobs at the same time, and 3 partitions have at most 6,000", share_group(),
         app=replace(QUEUE_APP, concurrency={"jobs": 4_000}, processes=2)),
    Case("APP02", "no ACL allows User:worker to read group jobs", {}, app=WORKER),
    Case("APP02", "it writes dead letters to orders.dlq, and no ACL allows User:worker to write topic orders.dlq", {},
         app=WORKER),
    Case("APP02", "to alter-configs group jobs", {}, app=WORKER, severity=Severity.WARNING),
    Case("DRF01", "orders: topic setting retention.ms is 5 and is declared as none; acl read is none",
         drift=(PlannedChange(kind=Kind.TOPIC_SETTING, subject="orders", name="retention.ms", old="5", new=None),
                PlannedChange(kind=Kind.ACL, subject="orders", name="read", old=None, new="allow"))),
    Case("APP01", "is a share group", {"groups": (group(type="Share"),)}, app=GOOD_APP, severity=Severity.ERROR),
]  # fmt: skip


def findings_of(case: Case, kept: Callable[[ClusterFacts], ClusterFacts] = lambda facts: facts) -> tuple[Finding, ...]:
    samples = [
        kept(earlier(**changes, by_ms=HOUR_MS * (len(case.earlier) - number)))
        for number, changes in enumerate(case.earlier)
    ]
    evidence = Evidence(
        facts=replace(GOOD, **case.facts), earlier=samples, app=case.app, limits=case.limits, drift=case.drift
    )
    return examine(evidence, only=[case.id]).findings


@pytest.mark.parametrize("case", CASES, ids=[f"{case.id}: {case.says[:40]}" for case in CASES])
def test_a_check_speaks_where_something_is_wrong(case: Case) -> None:
    spoken = [finding for finding in findings_of(case) if case.says in finding.message]
    assert spoken, findings_of(case)
    assert {finding.severity for finding in spoken} == {case.severity or all_checks()[case.id].severity}
    assert all(finding.fix and finding.subject for finding in spoken)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.earlier], ids=lambda case: f"{case.id}: {case.says[:40]}"
)
def test_a_check_compares_with_what_an_exporter_keeps(case: Case) -> None:
    assert findings_of(case, kept_for_comparison) == findings_of(case)


def test_every_check_is_provoked() -> None:
    assert {case.id for case in CASES} == all_checks().keys()


def test_all_checks_are_made_and_silent_on_a_good_cluster() -> None:
    samples = [earlier(by_ms=HOUR_MS * hours) for hours in (3, 2, 1)]
    report = examine(Evidence(facts=GOOD, earlier=samples, app=GOOD_APP, drift=()))
    assert report.findings == ()
    assert report.not_checked == ()
    assert set(report.checked) == all_checks().keys()


def test_a_setting_that_topics_have_of_their_brokers_is_one_finding() -> None:
    many = [inherits(topic(f"t{number:02}"), min_insync_replicas="1") for number in range(13)]
    own = topic("own", min_insync_replicas="1")
    (of_all, of_one) = sorted(
        examine(Evidence(facts=replace(GOOD, **topics(*many, own))), only=["REP05"]).findings,
        key=lambda each: each.subject,
    )
    assert of_all.message.startswith("13 topics (t00, t01, t02 and 10 more) have the brokers' min.insync.replicas 1")
    assert of_all.fix == "ottla cluster set all min.insync.replicas=2"
    assert (of_one.subject, of_one.fix) == ("own", "ottla topics set own min.insync.replicas=2")
    single = inherits(topic("single", partitions=[one_copy()]), min_insync_replicas="1")
    (of_all, _) = sorted(
        examine(Evidence(facts=replace(GOOD, **topics(*many, own, single))), only=["REP05"]).findings,
        key=lambda each: each.subject,
    )
    assert "once single has more than one replica" in of_all.fix, "or nothing could be written to it"


@pytest.mark.parametrize(
    ("id", "policy", "of_brokers", "subject"),
    [
        ("REP04", "delete", {"min_insync_replicas": "3"}, "min.insync.replicas"),
        ("REP06", "delete", {"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable"),
        ("STO01", "delete", {"retention_bytes": str(50 * GIB)}, "log.retention.bytes"),
        ("STO05", "delete", {"retention_ms": str(DAY_MS)}, "log.roll.ms"),
        ("STO05", "delete", {"retention_bytes": str(1 << 20)}, "log.segment.bytes"),
        ("STO07", "delete", {"retention_ms": "-1"}, "retention.ms"),
        ("STO08", "compact", {"min_cleanable_dirty_ratio": "1"}, "log.cleaner.min.cleanable.ratio"),
        ("STO09", "compact", {"delete_retention_ms": "0"}, "log.cleaner.delete.retention.ms"),
        ("STO10", "delete", {"segment_ms": "1000"}, "log.roll.ms"),
        ("STO11", "delete", {"flush_messages": "1"}, "log.flush.interval.messages"),
        ("STO12", "delete", {"compression_type": "lz4"}, "compression.type"),
        ("MSG01", "delete", {"max_message_bytes": "9000000"}, "message.max.bytes"),
    ],
)
def test_what_many_topics_have_of_their_brokers_is_found_once(
    id: str, policy: str, of_brokers: dict[str, str], subject: str
) -> None:
    many = [inherits(topic(f"t{number:02}", cleanup_policy=policy), **of_brokers) for number in range(13)]
    (found,) = examine(Evidence(facts=replace(GOOD, **topics(*many))), only=[id]).findings
    assert found.subject == subject
    assert "13 topics (t00, t01, t02 and 10 more)" in found.message
    assert "topics set" not in found.fix


def test_a_topic_with_one_replica_is_one_finding() -> None:
    others = [topic(f"orders-{number}") for number in range(6)]
    single = topic("single", partitions=[one_copy()])
    single = replace(single, settings=settings(TOPIC_SETTINGS, {}, ""))
    evidence = Evidence(facts=replace(GOOD, **topics(*others, single)))
    (found,) = examine(evidence).findings
    assert (found.id, found.subject) == ("REP01", "single")
    assert "acks=all writes are refused (min.insync.replicas 2)" in found.message
    assert {each.id for each in examine(evidence, skip=["REP01"]).findings} == {"REP03", "REP04"}, "each says it alone"


def test_partitions_that_one_broker_keeps_waiting_are_one_finding() -> None:
    """Two thousand of them: a broker died."""

    def at(number: int) -> PartitionInfo:
        if number % 2:
            return partition(number, replicas=(3, 1), in_sync=(3,), leader=None)
        return partition(number, replicas=(1, 3), in_sync=(1,), leader=1)

    away = brokers(broker(3, is_fenced=True))
    facts = replace(GOOD, **away, **topics(topic(partitions=[at(number) for number in range(2_000)])))
    found = examine(Evidence(facts=facts), only=["AVL01", "AVL02"]).findings
    assert [(each.id, each.subject) for each in found] == [("AVL01", "broker 3"), ("AVL02", "broker 3")]
    assert found[0].message == (
        "1,000 partitions (orders-1, orders-3, orders-5 and 997 more) have no leader and wait for broker 3 (away)"
    )
    assert "1,000 partitions (orders-0, orders-2, orders-4 and 997 more) have 1 replicas in sync" in found[1].message


def test_a_lost_log_directory_or_a_lost_broker_is_one_finding() -> None:
    def without(lost: int) -> PartitionInfo:
        left = tuple(each for each in partition().replicas if each != lost)
        return partition(in_sync=left, leader=left[0], offline=(lost,))

    for changes, lost, id in (
        (brokers(broker(2, log_dir(error="KAFKA_STORAGE_ERROR", total_bytes=None))), 2, "AVL03"),
        (brokers(broker(3, unreachable="refused", answers_as=None)), 3, "AVL06"),
        ({"brokers": GOOD.brokers[:2]}, 3, "AVL05"),
    ):
        facts = replace(GOOD, **changes, **topics(topic(partitions=[without(lost)])))
        evidence = Evidence(facts=facts, earlier=[earlier(facts)])
        assert [each.id for each in examine(evidence).findings] == [id]
        assert [each.id for each in examine(evidence, only=["AVL02"]).findings] == ["AVL02"], "alone it says so"


def test_writes_that_are_refused_are_said_beside_their_cause() -> None:
    facts = replace(
        GOOD, **brokers(broker(3, unreachable="refused", answers_as=None)), **topics(topic(partitions=[one_in_sync()]))
    )
    assert {each.id for each in examine(Evidence(facts=facts)).findings} == {"AVL02", "AVL06"}


def one_in_sync() -> PartitionInfo:
    return partition(in_sync=(1,), leader=1)


def test_a_group_that_loses_records_of_many_partitions_is_one_finding() -> None:
    facts = replace(
        GOOD,
        **topics(topic(partitions=[partition(number, log_start=10) for number in range(40)])),
        groups=(group(*[5] * 40),),
    )
    (found,) = examine(Evidence(facts=facts), only=["GRP04"]).findings
    assert (found.subject, found.severity) == ("group billing: orders", Severity.ERROR)
    assert found.message.startswith("group billing missed 200 records of 40 partitions of orders")


def test_compaction_that_takes_its_time_is_left_alone() -> None:
    for each in (
        compact(min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=str(DAY_MS)),
        compact(segment_ms=str(YEARS_MS), segment_bytes=str(GIB // 2)),
        compact(min_cleanable_dirty_ratio="nan"),
        topic(min_cleanable_dirty_ratio="1.0"),
    ):
        assert examine(Evidence(facts=replace(GOOD, **topics(each))), only=["STO08"]).findings == (), each.settings


def test_a_few_records_in_one_partition_and_schedules_are_left_alone() -> None:
    few = topic(partitions=[partition(0, high_watermark=9_999), partition(1, high_watermark=0)])
    schedule = topic("ottla.schedule.default", partitions=[partition(0, high_watermark=10**6), partition(1)])
    evidence = Evidence(facts=replace(GOOD, **topics(few, schedule)))
    assert examine(evidence, only=["BAL08"]).findings == ()


def test_a_schedule_with_a_scheduler_or_without_messages_needs_none() -> None:
    schedule = topic("ottla.schedule.default", of=64, **SCHEDULE)
    empty = topic(
        "ottla.schedule.old", partitions=[partition(each, high_watermark=0) for each in range(64)], **SCHEDULE
    )
    letters = topic("ottla.schedule.default.dead-letters", of=1)
    done = replace(topic("ottla.schedule.done", of=64, **SCHEDULE), waiting=0)
    tasks = topic("ottla.tasks.default", of=1)
    none = topic("ottla.tasks.old", partitions=[partition(0, high_watermark=0)])
    facts = replace(
        GOOD, **topics(schedule, empty, letters, done, tasks, none), groups=(group(group_id="ottla.schedule.default"),)
    )
    assert examine(Evidence(facts=facts), only=["SCH01", "SCH02", "SCH03"]).findings == ()


@pytest.mark.parametrize("count", [0, 1])
def test_a_cluster_of_nothing_or_one_broker_is_examined_without_a_word(count: int) -> None:
    one = [partition(number, replicas=(1,), in_sync=(1,), leader=1) for number in range(3)]
    alone = replace(
        GOOD,
        brokers=GOOD.brokers[:count],
        topics=(topic(partitions=one, min_insync_replicas="1"),) if count else (),
        quorum=voters(1, nodes=1),
    )
    assert examine(Evidence(facts=alone)).findings == ()


class TestNotChecked:
    def test_facts_that_were_not_asked_for(self) -> None:
        report = examine(Evidence(facts=replace(GOOD, parts=(Part.TOPICS,))))
        reasons = {each.id: each.reason for each in report.not_checked}
        assert reasons["REP02"] == "the facts have no broker_settings"
        assert reasons["BAL05"] == "the facts have no log_dirs, offsets"
        assert "REP01" not in reasons
        assert "REP02" not in report.checked

    def test_facts_that_were_refused(self) -> None:
        refused = tuple(
            NotRead(part=Part.LOG_DIRS, subject=f"broker {each}", reason="CLUSTER_AUTHORIZATION_FAILED")
            for each in (1, 2)
        )
        report = examine(Evidence(facts=replace(GOOD, not_read=refused)), only=["AVL03"])
        assert [each.reason for each in report.not_checked] == ["broker 1 and 1 more: CLUSTER_AUTHORIZATION_FAILED"]
        assert report.checked == ("AVL03",)

    def test_samples_and_a_service_that_are_missing(self) -> None:
        report = examine(Evidence(facts=GOOD), only=["GRP01", "DLQ03"])
        assert {each.id for each in report.not_checked} == {"GRP01", "DLQ03"}
        assert report.checked == ()


def test_samples_that_are_too_close_forecast_nothing() -> None:
    fuller = replace(GOOD, **brokers(broker(2, log_dir(*EVERYTHING, usable_bytes=30 * GIB))))
    for by_ms, found in ((9_999, 0), (10_000, 1)):
        before = earlier(**brokers(broker(2, log_dir(*EVERYTHING, usable_bytes=40 * GIB))), by_ms=by_ms)
        assert len(examine(Evidence(facts=fuller, earlier=[before]), only=["STO02"]).findings) == found


def test_checks_are_chosen_by_id_and_a_wrong_id_is_an_error() -> None:
    assert list(chosen(only=["REP02", "REP01"])) == ["REP01", "REP02"]
    assert "REP01" not in chosen(skip=["REP01"])
    with pytest.raises(ConfigError, match="REP99: no check has this id"):
        chosen(only=["REP99"])


def test_the_worst_comes_first() -> None:
    facts = replace(GOOD, **every_broker(authorizer_class_name=""), topics=(topic(partitions=[one_copy()]),))
    report = examine(Evidence(facts=facts))
    assert [each.severity for each in report.findings][:1] == [Severity.ERROR]
    assert report.findings[-1].severity is Severity.NOTE
    assert {each.id for each in report.at_least(Severity.ERROR)} == {"REP01", "REP04"} & {
        each.id for each in report.findings
    }


class TestBaselines:
    REPORT = examine(Evidence(facts=replace(GOOD, **topics(topic("one", partitions=[one_copy()])))), only=["REP01"])
    DAY = dt.date(2027, 1, 31)

    def test_what_is_accepted_is_set_apart_until_its_day(self) -> None:
        data = dump_baseline(self.REPORT, reason="a test topic", until=self.DAY)
        baseline = load_baseline(data, source="baseline.json")
        report = without_accepted(self.REPORT, baseline, today=self.DAY)
        assert (report.findings, report.accepted) == ((), self.REPORT.findings)
        later = without_accepted(self.REPORT, baseline, today=self.DAY + dt.timedelta(days=1))
        assert (later.findings, later.accepted) == (self.REPORT.findings, ())

    @pytest.mark.parametrize(
        ("entry", "place"),
        [
            ({"reason": " "}, r"accepted\[0\]\.reason"),
            ({"until": "soon"}, r"accepted\[0\]\.until: found 'soon', wanted a date"),
            ({"until": None}, r"\$\.accepted\[0\]\.until"),
        ],
    )
    def test_an_entry_without_a_reason_or_an_end_is_refused(self, entry: dict[str, Any], place: str) -> None:
        good = json.loads(dump_baseline(self.REPORT, reason="a test topic", until=self.DAY))
        good["accepted"][0] |= entry
        with pytest.raises(InputError, match=place):
            load_baseline(json.dumps(good).encode(), source="baseline.json")


def test_what_a_service_declares() -> None:
    app = App(
        "billing",
        bootstrap_servers="localhost:9092",
        dead_letter_topic="orders.dead-letters",
        create_topics={"invoices": 3},
    )

    @app.handler("orders", concurrency=4, retry_topics=RetryTopics(delays_s=(1.0,)))
    def on_order(value: bytes) -> None: ...

    declared = declaration_of(app, processes=2)
    assert declared.groups == {"billing": ("orders", "orders.billing.retry.1")}
    assert {(each.topic, each.use, each.of) for each in declared.topics} == {
        ("orders", "reads", ""),
        ("orders.dead-letters", "dead letters", "orders"),
        ("orders.billing.retry.1", "retries", "orders"),
        ("invoices", "writes", ""),
    }
    assert declared.concurrency == {"billing": 4}
    report = examine(Evidence(facts=GOOD, app=declared), only=["DLQ03", "APP01"])
    assert {each.subject for each in report.findings} == {
        "orders.dead-letters",
        "orders.billing.retry.1",
        "invoices",
        "group billing",  # retry topics that keep the order of keys need range, and its members use another assignor
    }
    assert declared.assignors == {"billing": (("range",), ("range",))}


def test_a_queue_whose_group_is_a_consumer_group() -> None:
    app = App("billing", bootstrap_servers="localhost:9092", dead_letter_topic="orders.dlq")

    @app.queue("orders", concurrency=50)
    def on_job(value: bytes) -> None: ...

    declared = declaration_of(app, processes=9)
    assert declared.queues == {"billing": QueueDeclaration(max_attempts=5, start="earliest")}
    assert declared.assignors == {}
    report = examine(Evidence(facts=GOOD, app=declared), only=["APP01"])
    (finding,) = report.findings  # more workers than partitions are what a queue is for
    assert "needs a share group" in finding.message
    assert finding.fix == "group='billing.queue' in @app.queue"


WORKER_ACLS = (
    allow("read", "group", "jobs"),
    allow("alter-configs", "group", "jobs"),
    allow("read", "topic", "orders"),
    allow("write", "topic", "orders.dlq"),
)


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        ({"acls": WORKER_ACLS}, set()),
        ({"acls": WORKER_ACLS[1:]}, {"group jobs"}),
        ({"acls": WORKER_ACLS[:3]}, {"topic orders.dlq"}),
        ({"acls": (*WORKER_ACLS[:3], allow("all", "topic", "orders.", pattern="prefixed"))}, set()),
        ({"acls": (*WORKER_ACLS[:2], allow("read", "topic", "*"), WORKER_ACLS[3])}, set()),
        ({"acls": (*WORKER_ACLS[1:], allow("read", "group", "jobs", principal="User:*"))}, set()),
        ({"acls": (*WORKER_ACLS[1:], allow("read", "group", "jobs", principal="User:other"))}, {"group jobs"}),
        ({"acls": (*WORKER_ACLS, allow("read", "group", "jobs", permission="deny"))}, {"group jobs"}),
        ({"acls": (*WORKER_ACLS, allow("write", "group", "jobs", permission="deny"))}, set()),
        ({"acls": (*WORKER_ACLS, allow("all", "group", "jobs", permission="deny", host="10.0.0.7"))}, set()),
        ({"acls": (WORKER_ACLS[0], *WORKER_ACLS[2:]), **share_group()}, set()),  # where it starts was set before
        ({"acls": (), **every_broker(super_users="User:admin;User:worker")}, set()),
        ({"acls": WORKER_ACLS[:3], **every_broker(allow_everyone_if_no_acl_found="true")}, set()),
        ({"acls": (), **every_broker(authorizer_class_name="")}, set()),
    ],
)
def test_permissions_of_a_queue_are_decided_as_a_broker_decides(facts: dict[str, Any], refused: set[str]) -> None:
    report = examine(Evidence(facts=replace(GOOD, **facts), app=WORKER), only=["APP02"])
    assert {finding.subject for finding in report.findings} == refused


def test_permissions_of_a_service_whose_user_is_not_known_are_not_guessed() -> None:
    report = examine(Evidence(facts=GOOD, app=replace(WORKER, consumer={}, producer={})), only=["APP02"])
    assert report.findings == ()


@given(st.data())
def test_no_facts_make_a_check_fail(data: st.DataObject) -> None:
    """Facts come from brokers and files that nobody vouches for."""
    numbers = st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1))
    ids = st.lists(st.integers(-1, 5), max_size=4).map(tuple)
    texts = st.one_of(st.none(), st.sampled_from(["", "-1", "true", "9" * 30, "x", "0"]), st.text(max_size=5))
    fact = PartitionInfo(
        partition=0,
        leader=data.draw(st.one_of(st.none(), st.integers(-1, 5))),
        leader_epoch=0,
        replicas=data.draw(ids),
        in_sync=data.draw(ids),
        **{
            name: data.draw(numbers)
            for name in ("log_start", "high_watermark", "last_stable_offset", "newest_timestamp_ms")
        },
        expires_within_hour=data.draw(numbers),
        hour_ago_offset=data.draw(numbers),
    )
    found = {name: SettingInfo(value=data.draw(texts), source="DYNAMIC_TOPIC_CONFIG") for name in TOPIC_SETTINGS}
    disk = LogDirInfo(path="/", total_bytes=data.draw(numbers), usable_bytes=data.draw(numbers))
    sizes = ReplicaInfo(topic="orders", partition=0, bytes=data.draw(st.integers(0, 1 << 62)), offset_lag=0)
    facts = replace(
        GOOD,
        topics=(replace(topic(partitions=[fact]), settings=found), topic("orders.dlq", partitions=[fact])),
        brokers=(broker(1, replace(disk, replicas=(sizes,))), broker(2, disk)),
        groups=(group(data.draw(st.integers(0, (1 << 63) - 1))),),
    )
    report = examine(Evidence(facts=facts, earlier=[earlier(), earlier(facts)], app=GOOD_APP))
    assert all(finding.message for finding in report.findings)


def test_the_page_is_made_of_the_registry() -> None:
    there = Path(__file__).parents[2] / "docs/reference/doctor.md"
    assert there.read_text() == page(), "run python -m ottla.admin.doctor.page > docs/reference/doctor.md"


def test_facts_from_a_file_are_examined_as_those_that_were_read() -> None:
    assert examine(Evidence(facts=load_facts(dump_facts(GOOD)))) == examine(Evidence(facts=GOOD))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (format_bytes(5), "5 bytes"),
        (format_bytes(1536), "1.5 KiB"),
        (format_bytes(5 << 50), "5,120.0 TiB"),
        (format_duration(90_000), "90 s"),
        (format_duration(31 * HOUR_MS), "31 h"),
        (format_duration(7 * DAY_MS), "7 d"),
    ],
)
def test_sizes_and_times_are_told_in_the_unit_that_fits(told: str, expected: str) -> None:
    assert told == expected
