"""The KIP-848 groups of one shard (`TimedGroups`)."""

from __future__ import annotations

from .consumer.group import ConsumerGroup
from .consumer.heartbeat import heartbeat
from .consumer.leave import expire, leave
from .consumer.records import RECORDS, ConsumerRecord
from .heartbeats import MembershipConfig
from .timed_groups import TimedGroups


class ConsumerGroups(TimedGroups[ConsumerGroup, ConsumerRecord]):
    """KIP-848 groups by id."""

    kind, make, records = "consumer", ConsumerGroup, RECORDS
    stay, leave, expire = staticmethod(heartbeat), staticmethod(leave), staticmethod(expire)

    def _config_of(self, group: ConsumerGroup) -> MembershipConfig:
        return self._config().consumer_of(self._overrides_of(group))
