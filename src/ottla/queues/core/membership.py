"""The membership of a share group: heartbeats, and the partitions that the group coordinator assigns (KIP-932).

| error of a heartbeat | then |
|---|---|
| none | the next one in `heartbeat_interval_ms`, or sooner while nothing is assigned; an assignment replaces the last |
| COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR | find the coordinator, ask again soon |
| UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH; GROUP_ID_NOT_FOUND of a member | join again with epoch 0, without partitions |
| GROUP_ID_NOT_FOUND while joining | the group exists, and is of another type: `error` |
| GROUP_MAX_SIZE_REACHED | join again after an interval: a member may have left |
| anything else | the member cannot work: `error` |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.queues.core.acknowledgements import Place
from ottla.wire_client.cluster.coordinator_calls import MOVED
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

_JOINING: Final = 0
_LEAVING: Final = -1
_FIRST_INTERVAL_MS: Final = 1_000
_AGAIN_MS: Final = 200
"""How long after an answer of a broker that is not the coordinator."""

_FIRST_WAIT_MS: Final = 250
"""How soon a member that has no partition asks again. It waits twice as long each time, up to the interval: a new group
gets its partitions with the second or third heartbeat, and the interval is 5 s."""

_REJOINS: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


@fact
class HeartbeatRequest:
    """What to send to the group coordinator. `topics` is None where the coordinator knows them."""

    member_id: str
    member_epoch: int
    topics: Sequence[str] | None


@fact
class HeartbeatAnswer:
    """What a coordinator answered. `assigned` is None where the assignment is as before."""

    error: ErrorCode
    message: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: Sequence[Place] | None = None


class ShareMembership:
    """The state of one member in its group. See the module."""

    __slots__ = (
        "_epoch",
        "_in_flight",
        "_interval_ms",
        "_member_id",
        "_topics",
        "_wait_ms",
        "assigned",
        "due_ms",
        "error",
        "has_joined",
        "has_left",
        "is_full",
        "must_find_coordinator",
    )

    def __init__(self, *, member_id: str, topics: Iterable[str], now_ms: int) -> None:
        self._member_id = member_id
        self._topics = sorted(topics)
        self._epoch = _JOINING
        self._interval_ms = _FIRST_INTERVAL_MS
        self._wait_ms = _FIRST_WAIT_MS
        self._in_flight = False
        self.due_ms = now_ms
        """When the next heartbeat is to be sent."""
        self.assigned: frozenset[Place] = frozenset()
        self.has_joined = False
        """Whether the coordinator has answered, and assigned partitions or none."""
        self.has_left = False
        self.is_full = False
        """Whether the group has as many members as the broker allows."""
        self.must_find_coordinator = True
        self.error: HeartbeatAnswer | None = None
        """The answer that ended the membership."""

    def next_request(self, now_ms: int, *, leaves: bool = False) -> HeartbeatRequest | None:
        """Return the heartbeat that is due, or the one that leaves the group; None if none is."""
        if self._in_flight or self.has_left or self.error is not None:
            return None
        if leaves:
            self._in_flight = True
            return HeartbeatRequest(member_id=self._member_id, member_epoch=_LEAVING, topics=None)
        if now_ms < self.due_ms:
            return None
        self._in_flight = True
        topics = self._topics if self._epoch == _JOINING else None
        return HeartbeatRequest(member_id=self._member_id, member_epoch=self._epoch, topics=topics)

    def answered(self, request: HeartbeatRequest, answer: HeartbeatAnswer, now_ms: int) -> bool:
        """Take in an answer. Returns whether the assignment changed."""
        self._in_flight = False
        if request.member_epoch == _LEAVING:
            self.has_left = True
            return False
        before = self.assigned
        if answer.error is ErrorCode.NONE:
            self.must_find_coordinator = self.is_full = False
            self.has_joined = True
            self._epoch = answer.member_epoch
            self._interval_ms = max(1, answer.interval_ms)
            if answer.assigned is not None:
                self.assigned = frozenset(answer.assigned)
            self.due_ms = now_ms + (self._interval_ms if self.assigned else min(self._interval_ms, self._wait_ms))
            self._wait_ms = _FIRST_WAIT_MS if self.assigned else self._wait_ms * 2
            return before != self.assigned
        elif answer.error in MOVED:
            self.must_find_coordinator = True
            self.due_ms = now_ms + _AGAIN_MS
            return False
        elif answer.error in _REJOINS and not (
            answer.error is ErrorCode.GROUP_ID_NOT_FOUND and request.member_epoch == _JOINING
        ):
            self._epoch = _JOINING
            self.assigned = frozenset()
            self.due_ms = now_ms + _AGAIN_MS
            return before != self.assigned
        elif answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self.is_full = True
        else:
            self.error = answer
            return False
        self.due_ms = now_ms + self._interval_ms
        return before != self.assigned

    def disconnected(self, now_ms: int) -> None:
        """Take in that the coordinator did not answer."""
        self._in_flight = False
        self.must_find_coordinator = True
        self.due_ms = now_ms + _AGAIN_MS
