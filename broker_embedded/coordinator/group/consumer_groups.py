"""The KIP-848 groups of one shard, their deadlines and their records.

Memory changes when records are made, before the log has them: two heartbeats that come close together must not both see
the old state. If the append then fails, memory is ahead of the log and the shard asks to be replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import ResourceType
from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext, Timer
from .config import GroupConfig
from .consumer.group import ConsumerGroup
from .consumer.heartbeat import ConsumerGroupConfig, ConsumerHeartbeatRequest, HeartbeatResponse, heartbeat
from .consumer.leave import expire, leave
from .consumer.member import MemberState
from .consumer.records import ConsumerRecord, GroupEpoch, MemberMetadata, Regex, encode

log = logging.getLogger(__name__)


class ConsumerGroups:
    """KIP-848 groups by id."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]) -> None:
        self._context = context
        self._config = config
        self._groups: dict[str, ConsumerGroup] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(tuple(self._groups.values()))

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    # -- replay

    def replay(self, group_id: str, record: ConsumerRecord) -> None:
        group = self._groups.get(group_id)
        match record:
            case GroupEpoch(epoch=None):
                self._groups.pop(group_id, None)
                return
            case GroupEpoch() | MemberMetadata(subscription=None) | Regex(resolved=None):
                is_tombstone = not isinstance(record, GroupEpoch)
            case _:
                is_tombstone = False
        if group is None:
            if is_tombstone:
                return
            group = self._groups[group_id] = ConsumerGroup(group_id)
        group.replay(record)

    def on_loaded(self) -> None:
        """Start the timers: a whole session for every member, and a whole rebalance timeout for members with
        revocations."""
        now_ms = self._context.monotonic_ms()
        for group in list(self._groups.values()):
            if not group.members and group.epoch == 0:
                # What compaction left of a group that was deleted: tombstones of its parts.
                del self._groups[group.group_id]
                continue
            config = self._config_of(group)
            for member_id, member in group.members.items():
                group.session_deadlines_ms[member_id] = now_ms + config.session_timeout_ms
                if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
                    deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
                    group.rebalance_deadlines_ms[member_id] = (deadline_ms, member.progress.epoch)
            self._arm(group)

    def unload(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._groups.clear()

    # -- requests

    def heartbeat(
        self,
        request: ConsumerHeartbeatRequest,
        reply: Reply[HeartbeatResponse],
        *,
        before: Sequence[CoordinatorRecord] = (),
        on_joined: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer when the log has what the heartbeat changed.

        `before`: records that go first, if the request is accepted (the tombstone of an empty classic group that this
        one replaces); `on_joined` is called then.
        """
        group = self._groups.get(request.group_id)
        is_new = group is None
        if group is None:
            group = ConsumerGroup(request.group_id)
        try:
            records, response = self._handle(group, request)
        except BrokerError as error:
            reply.settle(_refusal(error.code, error.message))
            return
        if is_new:
            self._groups[group.group_id] = group
            on_joined()
        self._append(group, records, lambda error: _answer(reply, response, error), before=before)
        self._arm(group)

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
        """Return the settings as they are now: a change is seen by the next heartbeat."""
        overrides = self._context.metadata().config_overrides(ResourceType.GROUP, group.group_id)
        return self._config().consumer_of(overrides)

    def remove(self, group: ConsumerGroup) -> list[CoordinatorRecord]:
        """Take an empty group out of memory; the tombstones that take it out of the log."""
        self._groups.pop(group.group_id, None)
        armed = self._timers.pop(group.group_id, None)
        if armed is not None:
            armed[1].cancel()
        return self.tombstones(group)

    def tombstones(self, group: ConsumerGroup) -> list[CoordinatorRecord]:
        return [encode(group.group_id, record) for record in group.tombstones()]

    # -- time

    def _arm(self, group: ConsumerGroup) -> None:
        deadline_ms = group.earliest_deadline_ms()
        armed = self._timers.get(group.group_id)
        if deadline_ms is None:
            if armed is not None:
                armed[1].cancel()
                del self._timers[group.group_id]
            return
        if armed is not None:
            if armed[0] <= deadline_ms:
                return
            armed[1].cancel()
        timer = self._context.call_at(deadline_ms, lambda: self._wake(group))
        self._timers[group.group_id] = (deadline_ms, timer)

    def _wake(self, group: ConsumerGroup) -> None:
        self._timers.pop(group.group_id, None)
        if self._groups.get(group.group_id) is not group:
            return
        records = expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())
        self._append(group, records, _log_failure)
        self._arm(group)

    def _append(
        self,
        group: ConsumerGroup,
        records: Sequence[ConsumerRecord],
        on_done: Callable[[ErrorCode], None],
        *,
        before: Sequence[CoordinatorRecord] = (),
    ) -> None:
        batch = [*before, *(encode(group.group_id, record) for record in records)]
        if not batch:
            on_done(ErrorCode.NONE)
            return

        def appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._context.reload(f"group {group.group_id} could not be written: {error.name}")
            on_done(client_error(error))

        self._context.append(batch, appended)


def _answer(reply: Reply[HeartbeatResponse], response: HeartbeatResponse, error: ErrorCode) -> None:
    reply.settle(response if error is ErrorCode.NONE else _refusal(error, "the group could not be written; try again"))


def _refusal(error: ErrorCode, message: str) -> HeartbeatResponse:
    return HeartbeatResponse(error=error, error_message=message or None)


def _log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        log.warning("the end of a member's session was not written: %s", error.name)
