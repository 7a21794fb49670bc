"""Topic settings: Kafka's names and Kafka's defaults."""

from __future__ import annotations

import re

from broker_embedded.common.config_definition import (
    LONG_MAX,
    Definition,
    at_least,
    between,
    boolean,
    definitions_of,
    double,
    integer,
    long,
    one_of,
    some_of,
    string,
    words,
)
from ottla_wire.facts import fact

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
NO_DECOMPRESSED_LIMIT = 2_147_483_639
"""Kafka's default of `max.decompressed.message.bytes`: what an array of Java's can hold."""
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _throttled_replicas(value: tuple[str, ...]) -> str | None:
    is_right = value == ("*",) or all(re.fullmatch(r"(\d+:\d+)?", each) for each in value)
    return None if is_right else "* or a comma-separated list of partition:broker"


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "-1 (zlib's default) or between 1 and 9"


def _no_tiered_storage(value: bool) -> str | None:
    return "false: there is no tiered storage" if value else None


@fact
class TopicConfig:
    """The settings of one topic, defaults resolved, and two of its broker's that its logs obey. `synonym` names the
    broker setting that gives the default."""

    cleanup_policy: tuple[str, ...] = words(
        ("delete",),
        "delete, compact, both, or nothing: then all is kept",
        check=some_of("delete", "compact"),
        synonym="log.cleanup.policy",
    )
    compression_gzip_level: int = integer(-1, "level of gzip where the broker compresses", check=_gzip_level)
    compression_lz4_level: int = integer(9, "level of lz4 where the broker compresses", check=between(1, 17))
    compression_zstd_level: int = integer(3, "level of zstd where the broker compresses", check=between(-131_072, 22))
    compression_type: str = string(
        "producer",
        "final compression of the topic; `producer` keeps the producer's",
        check=one_of(*_COMPRESSIONS),
        synonym="compression.type",
    )
    delete_retention_ms: int = long(
        _DAY_MS,
        "how long tombstones stay after compaction",
        check=at_least(0),
        synonym="log.cleaner.delete.retention.ms",
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        False, "let the broker write dead letters of share groups here (KIP-1191)"
    )
    file_delete_delay_ms: int = long(
        60_000,
        "wait between renaming a segment to .deleted and removing it",
        check=at_least(0),
        synonym="log.segment.delete.delay.ms",
    )
    flush_messages: int = long(
        LONG_MAX, "fsync after this many records", check=at_least(1), synonym="log.flush.interval.messages"
    )
    flush_ms: int = long(LONG_MAX, "fsync after this time", check=at_least(0), synonym="log.flush.interval.ms")
    follower_replication_throttled_replicas: tuple[str, ...] = words(
        (), "partition:broker pairs throttled on the follower side", check=_throttled_replicas
    )
    index_interval_bytes: int = integer(
        4096,
        "bytes of log between two entries of the offset index",
        check=at_least(0),
        synonym="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = words(
        (), "partition:broker pairs throttled on the leader side", check=_throttled_replicas
    )
    local_retention_bytes: int = long(
        -2, "retention.bytes of what tiered storage keeps on the broker", check=at_least(-2)
    )
    local_retention_ms: int = long(-2, "retention.ms of what tiered storage keeps on the broker", check=at_least(-2))
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        "longest time a record may stay uncompacted",
        check=at_least(1),
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    max_decompressed_message_bytes: int = integer(
        NO_DECOMPRESSED_LIMIT,
        "largest record of a compressed batch, decompressed",
        check=between(1, NO_DECOMPRESSED_LIMIT),
    )
    max_message_bytes: int = integer(
        1_048_588, "largest record batch, after compression", check=at_least(0), synonym="message.max.bytes"
    )
    message_timestamp_after_max_ms: int = long(
        _HOUR_MS,
        "how far in the future a CreateTime timestamp may lie",
        check=at_least(0),
        synonym="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "how far in the past a CreateTime timestamp may lie",
        check=at_least(0),
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "CreateTime keeps the producer's timestamp, LogAppendTime sets the broker's",
        check=one_of("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "dirty share of the log that starts compaction",
        check=between(0, 1),
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = long(
        0, "shortest time a record stays uncompacted", check=at_least(0), synonym="log.cleaner.min.compaction.lag.ms"
    )
    min_insync_replicas: int = integer(
        1, "replicas that must be in sync for acks=all to succeed", check=at_least(1), synonym="min.insync.replicas"
    )
    preallocate: bool = boolean(False, "allocate a segment's file at its full size", synonym="log.preallocate")
    remote_copy_lag_bytes: int = long(-1, "newer bytes before tiered storage copies a segment", check=at_least(-1))
    remote_copy_lag_ms: int = long(0, "age before tiered storage copies a segment", check=at_least(-1))
    remote_log_copy_disable: bool = boolean(False, "stop copying to tiered storage")
    remote_log_delete_on_disable: bool = boolean(False, "delete what is there when tiered storage goes off")
    remote_storage_enable: bool = boolean(False, "tiered storage, which there is not", check=_no_tiered_storage)
    retention_bytes: int = long(
        -1,
        "size of a *partition* above which old segments are deleted; negative: no limit",
        synonym="log.retention.bytes",
    )
    retention_ms: int = long(
        7 * _DAY_MS,
        "age above which segments are deleted; -1: no limit",
        check=at_least(-1),
        synonym="log.retention.ms",
    )
    segment_bytes: int = integer(
        1_073_741_824, "size at which a segment is closed", check=at_least(14), synonym="log.segment.bytes"
    )
    segment_index_bytes: int = integer(
        10_485_760,
        "size of an index file; a full index closes the segment",
        check=at_least(4),
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = long(
        0,
        "random share taken off segment.ms, so that segments do not roll together",
        check=at_least(0),
        synonym="log.roll.jitter.ms",
    )
    segment_ms: int = long(
        7 * _DAY_MS, "age at which a segment is closed even if it is not full", check=at_least(1), synonym="log.roll.ms"
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "elect a replica that is out of sync when no other lives: data is lost",
        synonym="unclean.leader.election.enable",
    )
    # --- of the broker
    producer_id_expiration_ms: int = _DAY_MS
    walks_records: bool = False
    """`log.records.validation.enable`"""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


TOPIC_SETTINGS: dict[str, Definition] = definitions_of(TopicConfig)
