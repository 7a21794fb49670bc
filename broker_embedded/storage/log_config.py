"""The settings a log needs, under Kafka's names: a topic's settings plus the broker's that reach into storage."""

from __future__ import annotations

from dataclasses import fields

from broker_embedded.common.config_definition import LONG_MAX
from broker_embedded.common.topic_settings import TopicConfig
from ottla_wire.facts import fact

NO_DECOMPRESSED_LIMIT = 2_147_483_639
"""Kafka's default of `max.decompressed.message.bytes`: what an array of Java's can hold."""
_OF_BROKER = ("producer_id_expiration_ms", "walks_records")
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@fact
class LogConfig:
    """Defaults are Kafka 4's. Units are in the names; -1 is "no limit" for retention."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_decompressed_message_bytes: int = NO_DECOMPRESSED_LIMIT
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = _HOUR_MS
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_ms: int = 7 * _DAY_MS
    producer_id_expiration_ms: int = _DAY_MS
    """A broker setting (`producer.id.expiration.ms`)."""
    walks_records: bool = False
    """A broker setting (`log.records.validation.enable`)."""

    @classmethod
    def of(
        cls, topic: TopicConfig, *, producer_id_expiration_ms: int = _DAY_MS, walks_records: bool = False
    ) -> LogConfig:
        """Return the storage view of a topic's settings."""
        shared = {f.name: getattr(topic, f.name) for f in fields(cls) if f.name not in _OF_BROKER}
        return cls(
            **shared,
            producer_id_expiration_ms=producer_id_expiration_ms,
            walks_records=walks_records,
        )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
