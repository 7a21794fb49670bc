"""A member of a group of the next generation (KIP-848), sans IO: the broker assigns, one request does everything.

Used as `Membership` is, with the same changes. What differs: there is no leader, no JoinGroup and no barrier. Each
heartbeat says which partitions the member has; its answer may say which it is to have. The coordinator gives a
partition only when its owner has released it, so what is given may be taken at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from ottla.topics import TopicPartition
from ottla.wire_client.errors import group_protocol_refused
from ottla.wire_client.group.classic_protocol import (
    Assign,
    Change,
    ElectedLeader,
    Failed,
    GroupRequest,
    Membership,
    MembershipOptions,
    MembershipPhase,
)
from ottla_wire.protocol import ApiKey, ErrorCode

_JOINS: Final = 0
_LEAVES: Final = -1
_STATIC_LEAVES: Final = -2


class ConsumerProtocolMembership(Membership):
    """See the module. `member_id` is the member's own choice, for as long as it lives."""

    commit_version = 9

    def __init__(self, *, member_id: str, assignor: str | None = None, **options: Unpack[MembershipOptions]) -> None:
        super().__init__(assignors=(), **options)
        self.member_id = member_id
        self.generation = _JOINS
        self._assignor = assignor
        self._target: list[tuple[bytes, tuple[int, ...]]] | None = None
        """The target assignment, while the id of one of its topics is not known."""

    @property
    def is_member(self) -> bool:
        return self.generation > 0 and self.phase is not MembershipPhase.OVER

    @property
    def is_nameless(self) -> bool:
        """Return whether the coordinator has not said yet that it is a member: a goodbye could overtake its request."""
        return self.generation == _JOINS

    @property
    def takes_commits(self) -> bool:
        return self.is_member

    @property
    def leads(self) -> bool:
        return False

    def next_ask(self, now_ms: int) -> GroupRequest | None:
        if now_ms < self.next_ms or self.phase is MembershipPhase.OVER:
            return None
        return self._beat()

    def leave(self) -> GroupRequest | None:
        was_member = self.is_member
        self.phase = MembershipPhase.OVER
        if not was_member:
            return None
        ask = self._beat()
        ask.body["member_epoch"] = _LEAVES if self.instance_id is None else _STATIC_LEAVES
        return ask

    def led(self, counts: Mapping[str, int], now_ms: int) -> list[Change]:
        """Take the topics' ids, which may be known now."""
        target, self._target = self._target, None
        return [] if target is None else self._reconcile(target, now_ms)

    def revoke_done(self, now_ms: int) -> None:
        if self.phase is MembershipPhase.REVOKING:
            self.owned = self.owned - self._leaving
            self.phase = MembershipPhase.STABLE
            self._next_ms = now_ms

    def refused_commit(self, code: ErrorCode, now_ms: int) -> list[Change]:
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            self._next_ms = now_ms  # the heartbeat brings the new one
            return []
        return super().refused_commit(code, now_ms)

    def _beat(self) -> GroupRequest:
        names = {name: topic_id for topic_id, name in self.topic_ids.items()}
        have: dict[bytes, list[int]] = {}
        for place in sorted(self.owned):
            if place.topic in names:
                have.setdefault(names[place.topic], []).append(place.partition)
        return GroupRequest(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": self.generation,
                "instance_id": self.instance_id,
                "rack_id": self._rack or None,
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_topic_names": sorted(self.topics),
                "server_assignor": self._assignor,
                "topic_partitions": [{"topic_id": key, "partitions": indexes} for key, indexes in have.items()],
            },
        )

    def _heartbeat_answered(self, code: ErrorCode, now_ms: int) -> list[Change]:
        raise AssertionError("a group of the next generation has no such heartbeat")

    def _answered(self, ask: GroupRequest, code: ErrorCode, answer: Any, now_ms: int) -> list[Change]:
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            return self._expelled(now_ms)
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            return self._fenced()
        if code is not ErrorCode.NONE:
            if code is ErrorCode.UNSUPPORTED_VERSION:
                self.phase = MembershipPhase.OVER
                return [Failed(group_protocol_refused(f"the coordinator of {self.group} refuses that protocol"))]
            return self._refused("ConsumerGroupHeartbeat", code)
        self.generation = answer.member_epoch
        self._last_response_ms = now_ms
        self._next_ms = now_ms + max(1, answer.heartbeat_interval_ms)
        if self.phase is MembershipPhase.OUT:
            self.phase = MembershipPhase.STABLE
        if answer.assignment is None:
            return []
        target = [(bytes(topic.topic_id), tuple(topic.partitions)) for topic in answer.assignment.topic_partitions]
        return self._reconcile(target, now_ms)

    def _reconcile(self, target: list[tuple[bytes, tuple[int, ...]]], now_ms: int) -> list[Change]:
        """Release partitions that are no longer assigned, and take the newly assigned ones."""
        if self.phase is MembershipPhase.REVOKING:
            return []  # the coordinator says it again when that is done
        if any(topic_id not in self.topic_ids for topic_id, _ in target):
            self._target = target
            return [ElectedLeader(tuple(sorted(self.topics)))]
        assigned = frozenset(
            TopicPartition(self.topic_ids[topic_id], index) for topic_id, indexes in target for index in indexes
        )
        taken, given = self.owned - assigned, assigned - self.owned
        self.owned = self.owned | given
        changes: list[Change] = []
        if given:
            self._next_ms = now_ms  # say that they are here
            changes.append(Assign(tuple(sorted(given))))
        if taken:
            changes += self._revoke(taken)
        return changes

    def _expelled(self, now_ms: int) -> list[Change]:
        member_id = self.member_id
        changes = super()._expelled(now_ms)
        self.member_id, self.generation = member_id, _JOINS
        self._target = None
        return changes
