"""The broker's settings that groups obey, in the shape in which they use them."""

from __future__ import annotations

from collections.abc import Mapping

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.group_bounds import group_settings
from ottla_wire.facts import fact

from .classic.group import ClassicGroupConfig
from .heartbeats import MembershipConfig


@fact
class GroupConfig:
    broker: BrokerConfig
    classic: ClassicGroupConfig
    consumer: MembershipConfig

    @classmethod
    def of(cls, broker: BrokerConfig) -> GroupConfig:
        return cls(
            broker=broker,
            classic=ClassicGroupConfig(
                initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms, max_size=broker.group_max_size
            ),
            consumer=_consumer_config(broker, {}),
        )

    def consumer_of(self, overrides: Mapping[str, str]) -> MembershipConfig:
        """Return the settings of a KIP-848 group with these overrides."""
        return _consumer_config(self.broker, overrides) if overrides else self.consumer

    def share_of(self, overrides: Mapping[str, str]) -> MembershipConfig:
        """Return the settings of a share group with these overrides."""
        group = group_settings(self.broker, overrides)
        return MembershipConfig(
            session_timeout_ms=group.share_session_timeout_ms,
            heartbeat_interval_ms=group.share_heartbeat_interval_ms,
            assignment_interval_ms=group.share_assignment_interval_ms,
            max_size=self.broker.group_share_max_size,
        )


def _consumer_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> MembershipConfig:
    group = group_settings(broker, overrides)
    return MembershipConfig(
        session_timeout_ms=group.consumer_session_timeout_ms,
        heartbeat_interval_ms=group.consumer_heartbeat_interval_ms,
        assignment_interval_ms=group.consumer_assignment_interval_ms,
        max_size=broker.group_consumer_max_size,
        assignors=broker.group_consumer_assignors,
    )
