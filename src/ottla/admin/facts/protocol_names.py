"""The protocol's numbers in administration, and Kafka's names for them."""

from __future__ import annotations

from typing import Final

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
"""Resource types of DescribeConfigs and IncrementalAlterConfigs."""

SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}

ACL_RESOURCES: Final = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional-id",
    6: "delegation-token",
    7: "user",
}
ACL_PATTERNS: Final = {3: "literal", 4: "prefixed"}
ACL_PERMISSIONS: Final = {2: "deny", 3: "allow"}
ACL_OPERATIONS: Final = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster-action",
    10: "describe-configs",
    11: "alter-configs",
    12: "idempotent-write",
    13: "create-tokens",
    14: "describe-tokens",
    15: "two-phase-commit",
}
ANY: Final = 1
"""In an ACL filter: whatever it is."""

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Questions of ListOffsets that are no time."""

TOPIC_SETTINGS: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
"""Topic settings in the facts, unless others are requested."""

BROKER_SETTINGS: Final = (
    "advertised.listeners",
    "authorizer.class.name",
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "default.replication.factor",
    "follower.replication.throttled.rate",
    "group.coordinator.rebalance.protocols",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
    "leader.replication.throttled.rate",
    "log.cleaner.enable",
    "log.dir",
    "log.dirs",
    "log.message.timestamp.after.max.ms",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "offsets.retention.minutes",
    "offsets.topic.replication.factor",
    "process.roles",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "replica.fetch.max.bytes",
    "replica.lag.time.max.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "unclean.leader.election.enable",
)
"""Broker settings in the facts."""
