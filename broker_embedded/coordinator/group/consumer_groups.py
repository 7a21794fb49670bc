"""The KIP-848 groups of one shard (`TimedGroups`)."""

from __future__ import annotations

from .consumer.group import ConsumerGroup
from .consumer.heartbeat import heartbeat
from .consumer.leave import expire, leave
from .consumer.records import RECORDS, ConsumerRecord
from .heartbeats import HeartbeatRequest, HeartbeatResponse, MembershipConfig
from .timed_groups import TimedGroups


class ConsumerGroups(TimedGroups[ConsumerGroup, ConsumerRecord]):
    """KIP-848 groups by id."""

    kind, make, records = "consumer", ConsumerGroup, RECORDS

    def _handle(
        self, group: ConsumerGroup, request: HeartbeatRequest
    ) -> tuple[list[ConsumerRecord], HeartbeatResponse]:
        image, now_ms = self._context.metadata(), self._context.monotonic_ms()
        if request.is_leaving:
            return leave(group, request, image=image)
        config, wall_ms = self._config_of(group), self._context.now_ms()
        return heartbeat(group, request, config=config, image=image, now_ms=now_ms, wall_ms=wall_ms)

    def _expire(self, group: ConsumerGroup) -> list[ConsumerRecord]:
        return expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())

    def _config_of(self, group: ConsumerGroup) -> MembershipConfig:
        return self._config().consumer_of(self._overrides_of(group))
