"""Broker settings: Kafka's names and Kafka's defaults, with the reason for each exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker_embedded.common.config_definition import (
    INT_MAX,
    LONG_MAX,
    Check,
    Definition,
    InvalidConfig,
    UpdateMode,
    at_least,
    between,
    boolean,
    class_name,
    definitions_of,
    each_of,
    integer,
    long,
    one_of,
    setting,
    string,
    words,
)
from broker_embedded.common.topic_settings import TOPIC_SETTINGS
from ottla_wire.facts import fact

_CLUSTER = UpdateMode.CLUSTER_WIDE
_BROKER = UpdateMode.PER_BROKER

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _authorizer(name: str) -> str | None:
    return None if name in ("", STANDARD_AUTHORIZER) else f"{STANDARD_AUTHORIZER}, or nothing for no authorizer"


def _principals(names: str) -> str | None:
    given = filter(None, map(str.strip, names.split(";")))
    is_good = all(all(name.partition(":")) for name in given)
    return None if is_good else "principals separated by semicolons, as in User:admin;User:ANONYMOUS"


def default_of(topic_setting: str, *, check: Check | None = None) -> Any:
    """Return the broker's default of a topic setting: the same type, default and check, unless `check` is narrower."""
    own = TOPIC_SETTINGS[topic_setting]
    is_namesake = own.synonym == topic_setting
    doc = "default of the topic setting" if is_namesake else f"default of {topic_setting}"
    return setting(own.type, own.default, doc, check=check or own.check, update=_CLUSTER)


def least_of(group_setting: str, default: int, *, check: Check) -> Any:
    return integer(default, f"least {group_setting} of a group", check=check)


def greatest_of(group_setting: str, default: int, *, check: Check) -> Any:
    return integer(default, f"greatest {group_setting} of a group", check=check)


@fact
class BrokerConfig:
    """The settings of one broker."""

    # --- node and sockets
    socket_request_max_bytes: int = integer(
        104_857_600, "largest request frame; a larger one closes the connection", check=at_least(1)
    )
    connections_max_idle_ms: int = long(600_000, "an idle connection is closed after this time; 0 or less: never")
    connections_max_reauth_ms: int = long(
        0, "a client with a password has to authenticate again within this time (KIP-368); 0 or less: never"
    )
    connection_failed_authentication_delay_ms: int = integer(
        100,
        "how long after a wrong password the answer comes and the connection is closed: guessing takes time",
        check=at_least(0),
    )
    queued_max_requests: int = integer(
        500, "accepted for compatibility; no effect: the loop queues nothing", check=at_least(1)
    )
    fetch_max_bytes: int = integer(
        57_671_680, "largest Fetch response, whatever the client asks for", check=at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "fetch sessions (KIP-227) kept at most", check=at_least(0)
    )
    # --- who may do what
    authorizer_class_name: str = class_name(
        "",
        f"{STANDARD_AUTHORIZER} lets clients do what ACLs allow; without one everybody may do everything",
        check=_authorizer,
    )
    super_users: str = string(
        "",
        "with an authorizer: who may do everything, whatever ACLs say, as in User:admin;User:ANONYMOUS",
        check=_principals,
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "with an authorizer: a resource that no ACL concerns is everybody's"
    )
    # --- topics
    auto_create_topics_enable: bool = boolean(True, "create a topic when a client asks for its metadata")
    delete_topic_enable: bool = boolean(True, "whether DeleteTopics is answered")
    cordoned_log_dirs: tuple[str, ...] = words(
        (), "log directories that get no new replicas (KIP-1066); * is all of them", update=_BROKER
    )
    num_partitions: int = integer(1, "partitions of an auto-created topic", check=at_least(1), update=_CLUSTER)
    default_replication_factor: int = integer(1, "replicas of an auto-created topic", check=at_least(1))
    min_insync_replicas: int = default_of("min.insync.replicas")
    unclean_leader_election_enable: bool = default_of("unclean.leader.election.enable")
    # --- log defaults (each is the synonym of a topic setting)
    log_cleanup_policy: tuple[str, ...] = default_of("cleanup.policy", check=each_of("delete", "compact"))
    compression_type: str = default_of("compression.type")
    log_cleaner_delete_retention_ms: int = default_of("delete.retention.ms")
    log_segment_delete_delay_ms: int = default_of("file.delete.delay.ms")
    log_flush_interval_messages: int = default_of("flush.messages")
    log_flush_interval_ms: int = default_of("flush.ms")
    log_index_interval_bytes: int = default_of("index.interval.bytes")
    log_cleaner_max_compaction_lag_ms: int = default_of("max.compaction.lag.ms")
    message_max_bytes: int = default_of("max.message.bytes")
    log_message_timestamp_after_max_ms: int = default_of("message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: int = default_of("message.timestamp.before.max.ms")
    log_message_timestamp_type: str = default_of("message.timestamp.type")
    log_cleaner_min_cleanable_ratio: float = default_of("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = default_of("min.compaction.lag.ms")
    log_preallocate: bool = default_of("preallocate")
    log_retention_bytes: int = default_of("retention.bytes", check=at_least(-1))
    log_retention_ms: int = default_of("retention.ms")
    log_segment_bytes: int = default_of("segment.bytes")
    log_index_size_max_bytes: int = default_of("segment.index.bytes")
    log_roll_jitter_ms: int = default_of("segment.jitter.ms")
    log_roll_ms: int = default_of("segment.ms")
    # --- background work
    log_retention_check_interval_ms: int = long(300_000, "how often retention is applied", check=at_least(1))
    log_cleaner_backoff_ms: int = long(
        15_000, "pause of the cleaner when nothing was dirty", check=at_least(0), update=_CLUSTER
    )
    log_records_validation_enable: bool = boolean(
        False,
        "open every batch of a client and check its records, as Kafka always does; Kafka has no such setting",
    )
    log_cleaner_enable: bool = boolean(True, "whether compacted topics are cleaned")
    log_cleaner_dedupe_buffer_size: int = long(
        134_217_728, "memory for the cleaner's key map", check=at_least(1024), update=_CLUSTER
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "how often recovery points are written", check=at_least(1)
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "how often log start offsets are written", check=at_least(1)
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, "how often high watermarks are written", check=at_least(1)
    )
    # --- producers
    producer_id_expiration_ms: int = integer(
        _DAY_MS, "an idle producer id is forgotten after this time", check=at_least(1), update=_CLUSTER
    )
    # --- replication
    replica_lag_time_max_ms: int = long(30_000, "a follower behind for longer leaves the ISR", check=at_least(1))
    replica_fetch_wait_max_ms: int = integer(500, "long poll of a follower", check=at_least(0))
    replica_fetch_min_bytes: int = integer(1, "bytes a follower waits for", check=at_least(0))
    replica_fetch_max_bytes: int = integer(1_048_576, "bytes per partition a follower asks for", check=at_least(1))
    replica_fetch_response_max_bytes: int = integer(
        10_485_760, "bytes a follower asks for in one request", check=at_least(0)
    )
    replica_fetch_backoff_ms: int = integer(
        1_000,
        "longest pause of a follower after an error. Kafka always waits this long; here the pause doubles from 10 ms "
        "up to it, so that a new topic does not wait for a broker that learns of it a moment later",
        check=at_least(0),
    )
    replica_socket_timeout_ms: int = integer(30_000, "how long a follower waits for an answer", check=at_least(1))
    num_replica_fetchers: int = integer(1, "connections to each leader that a follower fetches by", check=at_least(1))
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        "bytes per second that a leader sends to throttled replicas (leader.replication.throttled.replicas of a topic)",
        check=at_least(0),
        update=_BROKER,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX, "bytes per second that a follower fetches of throttled replicas", check=at_least(0), update=_BROKER
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX, "bytes per second that are copied between log directories", check=at_least(0), update=_BROKER
    )
    replica_selector_class: str = string(
        "",
        "which replica consumers should read from (KIP-392); empty: the leader",
        check=one_of(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    )
    # --- client quotas
    quota_window_num: int = integer(
        11,
        "windows over which what clients use is measured; the quotas themselves are set with AlterClientQuotas",
        check=at_least(1),
    )
    quota_window_size_seconds: int = integer(1, "length of such a window", check=at_least(1))
    controller_quota_window_num: int = integer(
        11, "windows whose changes of topics are saved up (controller_mutation_rate)", check=at_least(1)
    )
    controller_quota_window_size_seconds: int = integer(1, "length of such a window", check=at_least(1))
    # --- controller and brokers
    broker_rack: str | None = string(
        None, "the rack of the broker: replicas are spread over racks, consumers fetch from their own"
    )
    broker_session_timeout_ms: int = integer(
        9_000, "a broker without a heartbeat for this time is fenced, and others lead what it led", check=at_least(1)
    )
    broker_heartbeat_interval_ms: int = integer(
        2_000, "how often a broker tells the controller that it is alive", check=at_least(1)
    )
    peer_death_detection_enable: bool = boolean(
        False,
        "a node that refuses connections is taken for dead at once, not when its session or the quorum's timeout ends. "
        "Kafka has no such setting, and waits",
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        2_000,
        "a voter that hears nothing of the leader for so long stands for election; a leader that no majority fetches "
        "from for half as long again resigns",
        check=at_least(4),
    )
    controller_quorum_election_timeout_ms: int = integer(
        1_000, "an election takes at least this, and up to twice as long, before the next one", check=at_least(1)
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        1_000, "how long the later successors of a leader that resigns hold back at most", check=at_least(1)
    )
    auto_leader_rebalance_enable: bool = boolean(True, "move leaders back to the preferred replica")
    leader_imbalance_check_interval_seconds: int = long(300, "how often leaders are rebalanced", check=at_least(1))
    leader_imbalance_per_broker_percentage: int = integer(10, "imbalance that starts a rebalance", check=at_least(0))
    # --- groups
    group_initial_rebalance_delay_ms: int = integer(
        0,
        "wait for more members before the first rebalance of an empty group. Kafka's default is 3000; "
        "0 here, so that a test's group starts at once",
        check=at_least(0),
    )
    group_min_session_timeout_ms: int = integer(
        6_000, "shortest session timeout a member may ask for", check=at_least(1)
    )
    group_max_session_timeout_ms: int = integer(
        1_800_000, "longest session timeout a member may ask for", check=at_least(1)
    )
    group_max_size: int = integer(INT_MAX, "members of a classic group", check=at_least(1))
    group_coordinator_rebalance_protocols: tuple[str, ...] = words(
        ("classic", "consumer"),
        "group protocols that are served",
        check=each_of("classic", "consumer", "share", "streams"),
    )
    group_consumer_session_timeout_ms: int = integer(
        45_000, "session timeout of a KIP-848 group", check=at_least(1), update=_CLUSTER
    )
    group_consumer_min_session_timeout_ms: int = least_of("consumer.session.timeout.ms", 45_000, check=at_least(1))
    group_consumer_max_session_timeout_ms: int = greatest_of("consumer.session.timeout.ms", 60_000, check=at_least(1))
    group_consumer_heartbeat_interval_ms: int = integer(
        5_000, "heartbeat interval of the members of a KIP-848 group", check=at_least(1), update=_CLUSTER
    )
    group_consumer_min_heartbeat_interval_ms: int = least_of("consumer.heartbeat.interval.ms", 5_000, check=at_least(1))
    group_consumer_max_heartbeat_interval_ms: int = greatest_of(
        "consumer.heartbeat.interval.ms", 15_000, check=at_least(1)
    )
    group_consumer_assignment_interval_ms: int = integer(
        0,
        "shortest time between two assignments of a KIP-848 group (KIP-1263). Kafka's default is 1000; "
        "0 here, so that a test's second consumer has its share at once",
        check=at_least(0),
    )
    group_consumer_min_assignment_interval_ms: int = least_of("consumer.assignment.interval.ms", 0, check=at_least(0))
    group_consumer_max_assignment_interval_ms: int = greatest_of(
        "consumer.assignment.interval.ms", 15_000, check=at_least(0)
    )
    group_consumer_max_size: int = integer(INT_MAX, "members of a KIP-848 group", check=at_least(1))
    group_consumer_assignors: tuple[str, ...] = words(
        ("uniform", "range"), "server-side assignors, the default first", check=each_of("uniform", "range")
    )
    group_consumer_migration_policy: str = string(
        "disabled",
        "which way groups may change protocol while they have members. Kafka's default is bidirectional; here a group "
        "changes its protocol while it is empty, whatever this says",
        check=one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600_000, "how often regular expressions are resolved again without a reason", check=at_least(10_000)
    )
    # --- share groups (KIP-932)
    group_share_session_timeout_ms: int = integer(
        45_000, "session timeout of the members of a share group", check=at_least(1), update=_CLUSTER
    )
    group_share_min_session_timeout_ms: int = least_of("share.session.timeout.ms", 45_000, check=at_least(1))
    group_share_max_session_timeout_ms: int = greatest_of("share.session.timeout.ms", 60_000, check=at_least(1))
    group_share_heartbeat_interval_ms: int = integer(
        5_000, "heartbeat interval of the members of a share group", check=at_least(1), update=_CLUSTER
    )
    group_share_min_heartbeat_interval_ms: int = least_of("share.heartbeat.interval.ms", 5_000, check=at_least(1))
    group_share_max_heartbeat_interval_ms: int = greatest_of("share.heartbeat.interval.ms", 15_000, check=at_least(1))
    group_share_assignment_interval_ms: int = integer(
        0,
        "shortest time between two assignments of a share group. Kafka's default is 1000; 0 here, so that a test's "
        "second member has its partitions at once",
        check=at_least(0),
    )
    group_share_min_assignment_interval_ms: int = least_of("share.assignment.interval.ms", 0, check=at_least(0))
    group_share_max_assignment_interval_ms: int = greatest_of("share.assignment.interval.ms", 15_000, check=at_least(0))
    group_share_max_size: int = integer(200, "members of a share group", check=between(1, 1_000))
    group_share_assignors: tuple[str, ...] = words(
        ("simple",), "server-side assignor of share groups", check=each_of("simple")
    )
    group_share_max_share_sessions: int = integer(2_000, "share sessions on a broker", check=at_least(1))
    group_share_record_lock_duration_ms: int = integer(
        30_000,
        "how long a record is leased to a member of a share group",
        check=between(1_000, 3_600_000),
        update=_CLUSTER,
    )
    group_share_min_record_lock_duration_ms: int = least_of(
        "share.record.lock.duration.ms", 15_000, check=between(1_000, 30_000)
    )
    group_share_max_record_lock_duration_ms: int = greatest_of(
        "share.record.lock.duration.ms", 60_000, check=between(30_000, 3_600_000)
    )
    group_share_delivery_count_limit: int = integer(
        5, "deliveries after which a share group gives a record up", check=between(2, 10), update=_CLUSTER
    )
    group_share_min_delivery_count_limit: int = least_of("share.delivery.count.limit", 2, check=between(2, 5))
    group_share_max_delivery_count_limit: int = greatest_of("share.delivery.count.limit", 10, check=between(5, 25))
    group_share_partition_max_record_locks: int = integer(
        2_000, "records that a share group has in flight on a partition", check=between(100, 10_000), update=_CLUSTER
    )
    group_share_min_partition_max_record_locks: int = least_of(
        "share.partition.max.record.locks", 100, check=between(100, 2_000)
    )
    group_share_max_partition_max_record_locks: int = greatest_of(
        "share.partition.max.record.locks", 4_000, check=between(2_000, 10_000)
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        False, "create dead letter topics of share groups (KIP-1191), if their names have the prefix", update=_CLUSTER
    )
    errors_deadletterqueue_topic_name_prefix: str = string(
        "dlq.", "with what the names of dead letter topics of share groups begin; empty for any name", update=_CLUSTER
    )
    share_coordinator_state_topic_num_partitions: int = integer(
        4, "partitions of __share_group_state. Kafka's default is 50", check=at_least(1)
    )
    share_coordinator_state_topic_replication_factor: int = integer(
        3, "replicas of __share_group_state, at most the brokers there are", check=at_least(1)
    )
    share_coordinator_state_topic_min_isr: int = integer(
        2,
        "min.insync.replicas of __share_group_state; less than it has replicas, so that one broker may be missing",
        check=at_least(1),
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        104_857_600, "segment.bytes of __share_group_state", check=at_least(1)
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        500, "updates of a share partition between two snapshots", check=between(0, 500)
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        300_000, "how often old records of __share_group_state are deleted", check=at_least(1)
    )
    offsets_topic_num_partitions: int = integer(
        4,
        "partitions of __consumer_offsets. Kafka's default is 50; 4 here, so that a test's first group starts at once",
        check=at_least(1),
    )
    offsets_topic_replication_factor: int = long(
        3, "replicas of __consumer_offsets, at most the brokers there are", check=at_least(1)
    )
    offsets_topic_segment_bytes: int = integer(104_857_600, "segment.bytes of __consumer_offsets", check=at_least(1))
    offsets_retention_minutes: int = integer(
        7 * 24 * 60, "committed offsets of a group without members are kept this long", check=at_least(1)
    )
    offsets_retention_check_interval_ms: int = long(600_000, "how often they are expired", check=at_least(1))
    offset_metadata_max_bytes: int = integer(4096, "longest metadata text of a committed offset", check=at_least(0))
    # --- transactions
    transaction_max_timeout_ms: int = integer(
        900_000, "longest transaction timeout a producer may ask for", check=at_least(1)
    )
    transaction_state_log_num_partitions: int = integer(
        4, "partitions of __transaction_state. Kafka's default is 50", check=at_least(1)
    )
    transaction_state_log_replication_factor: int = long(
        3, "replicas of __transaction_state, at most the brokers there are", check=at_least(1)
    )
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "segment.bytes of __transaction_state", check=at_least(1)
    )
    transaction_state_log_min_isr: int = integer(
        2,
        "min.insync.replicas of __transaction_state; less than it has replicas, so that one broker may be missing",
        check=at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "how often transactions are found that are open for too long", check=at_least(1)
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "how often idle transactional ids are forgotten", check=at_least(1)
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "a leader asks the coordinator before it takes the first batch of a transaction (KIP-890)",
        update=_CLUSTER,
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20, "a leader that may not yet add a partition to a transaction asks again after this time", check=at_least(1)
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100, "and for this long, before it tells the producer to come again", check=at_least(0)
    )
    transactional_id_expiration_ms: int = integer(
        7 * _DAY_MS, "an idle transactional id is forgotten", check=at_least(1)
    )

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> BrokerConfig:
        """Return the defaults overridden by `settings`. An unknown or unusable setting raises InvalidConfig."""
        return cls().with_settings(settings)

    def with_settings(self, settings: Mapping[str, object]) -> BrokerConfig:
        """Return this config with some settings changed."""
        values: dict[str, Any] = {}
        for name, found in settings.items():
            definition = BROKER_SETTINGS.get(name)
            if definition is None:
                raise InvalidConfig(name, found, _closest(name))
            values[attribute_of(name)] = definition.parse(found)
        return replace(self, **values)


BROKER_SETTINGS: dict[str, Definition] = definitions_of(BrokerConfig)


def attribute_of(name: str) -> str:
    return name.replace(".", "_")


def _closest(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"a broker setting; there is none of this name{hint}"
