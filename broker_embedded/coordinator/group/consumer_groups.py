"""The KIP-848 groups of one shard (`TimedGroups`)."""

from __future__ import annotations

from collections.abc import Sequence

from .consumer.group import ConsumerGroup
from .consumer.heartbeat import ConsumerGroupConfig, ConsumerHeartbeatRequest, heartbeat
from .consumer.leave import expire, leave
from .consumer.records import RECORDS, ConsumerRecord
from .heartbeats import HeartbeatResponse
from .timed_groups import TimedGroups


class ConsumerGroups(TimedGroups[ConsumerGroup, ConsumerRecord, ConsumerHeartbeatRequest]):
    """KIP-848 groups by id."""

    make = ConsumerGroup
    records = RECORDS

    def _handle(
        self, group: ConsumerGroup, request: ConsumerHeartbeatRequest
    ) -> tuple[list[ConsumerRecord], HeartbeatResponse]:
        image = self._context.metadata()
        if request.is_leaving:
            return leave(group, request, image=image)
        return heartbeat(
            group,
            request,
            config=self._config_of(group),
            image=image,
            now_ms=self._context.monotonic_ms(),
            wall_ms=self._context.now_ms(),
        )

    def _config_of(self, group: ConsumerGroup) -> ConsumerGroupConfig:
        return self._config().consumer_of(self._overrides_of(group))

    def _session_timeout_ms(self, group: ConsumerGroup) -> int:
        return self._config_of(group).session_timeout_ms

    def _expire(self, group: ConsumerGroup) -> Sequence[ConsumerRecord]:
        return expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())
