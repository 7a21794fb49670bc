"""The broker's settings that groups obey, in the shape in which they use them."""

from __future__ import annotations

from broker_embedded.common.config import BrokerConfig
from broker_embedded.common.facts import fact

from .classic.group import ClassicGroupConfig
from .consumer.heartbeat import ConsumerGroupConfig

_MINUTE_MS = 60_000


@fact
class GroupConfig:
    classic: ClassicGroupConfig
    consumer: ConsumerGroupConfig
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    offsets_retention_check_interval_ms: int

    @classmethod
    def of(cls, broker: BrokerConfig) -> GroupConfig:
        return cls(
            classic=ClassicGroupConfig(
                initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms, max_size=broker.group_max_size
            ),
            consumer=ConsumerGroupConfig(
                session_timeout_ms=broker.group_consumer_session_timeout_ms,
                heartbeat_interval_ms=broker.group_consumer_heartbeat_interval_ms,
                max_size=broker.group_consumer_max_size,
                assignors=broker.group_consumer_assignors,
            ),
            min_session_timeout_ms=broker.group_min_session_timeout_ms,
            max_session_timeout_ms=broker.group_max_session_timeout_ms,
            offset_metadata_max_bytes=broker.offset_metadata_max_bytes,
            offsets_retention_ms=broker.offsets_retention_minutes * _MINUTE_MS,
            offsets_retention_check_interval_ms=broker.offsets_retention_check_interval_ms,
        )
