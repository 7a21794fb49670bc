"""One leased record: its lock, its delivery count, and how far this member has come with it.

| state | the record |
|---|---|
| READY | is leased, and no worker has begun it |
| RUNNING | is with a worker, or with the caller of a `Queue` |
| WAITING | waits for its next attempt |
| HELD | is handled, and its dead letter is being written |
| SETTLING | its acknowledgement is queued or under way |
| SETTLED | was acknowledged, and the broker has answered |
| LOST | belongs to another member, or will: the lock ran out, or the broker released it |
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ottla.topics import TopicPartition

if TYPE_CHECKING:
    from ottla.queues.core.acknowledgements import Place


class LeaseState(Enum):
    """See the module."""

    __hash__ = object.__hash__  # in C: that of Enum is Python, and each change of a state looks it up twice

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    HELD = "held"
    SETTLING = "settling"
    SETTLED = "settled"
    LOST = "lost"


S = LeaseState

VALID_PREVIOUS: Final[dict[LeaseState, frozenset[LeaseState]]] = {
    S.READY: frozenset(),
    S.RUNNING: frozenset({S.READY, S.WAITING}),
    S.WAITING: frozenset({S.RUNNING, S.HELD}),
    S.HELD: frozenset({S.RUNNING}),
    S.SETTLING: frozenset({S.READY, S.RUNNING, S.WAITING, S.HELD}),
    S.SETTLED: frozenset({S.SETTLING}),
    S.LOST: frozenset({S.READY, S.RUNNING, S.WAITING, S.HELD, S.SETTLING}),
}
"""State → the states before it."""

RENEWED: Final = frozenset({S.READY, S.RUNNING, S.WAITING, S.HELD})
"""A lease in one of these is renewed before its lock runs out."""

_RENEW_AT: Final = 0.7
"""The share of a lock after which it is renewed."""


class Lease:
    """A record that a broker has leased to this member. Compared by identity: a record may be leased again."""

    __slots__ = (
        "acquired_ms",
        "attempts",
        "began_ms",
        "data",
        "deadline_ms",
        "delivery_count",
        "has_begun",
        "has_worker",
        "is_ahead",
        "is_renewing",
        "is_timed_out",
        "lock_ms",
        "look_ms",
        "node",
        "offset",
        "place",
        "record",
        "renew_ms",
        "state",
        "topic_partition",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        place: Place,
        node: int,
        offset: int,
        record: Any,
        delivery_count: int,
        acquired_ms: int,
        lock_ms: int,
    ) -> None:
        """`acquired_ms` is when the request was sent that acquired it: the lock cannot have begun before."""
        self.topic_partition = topic_partition
        self.place = place
        self.node = node
        """The broker that leased it."""
        self.offset = offset
        self.record = record
        self.delivery_count = delivery_count
        """How often the group has acquired the record, as the broker counts."""
        self.acquired_ms = acquired_ms
        self.attempts = 0
        """How often this member has begun it."""
        self.began_ms = acquired_ms
        """When the current attempt was handed out, or begun."""
        self.has_begun = False
        """Whether a worker has begun with the current attempt."""
        self.has_worker = False
        """Whether a worker is busy with it, also when the lease has ended meanwhile."""
        self.is_ahead = False
        """Whether all workers were busy when it was handed out."""
        self.is_renewing = False
        """Whether a renewal is queued or under way."""
        self.is_timed_out = False
        """Whether the current attempt has lasted too long."""
        self.look_ms = -1
        """When something may be due of it."""
        self.data: Any = None
        """What whoever handles it keeps with it."""
        self.state = LeaseState.READY
        self.lock_ms = lock_ms
        self.deadline_ms = acquired_ms + lock_ms
        self.renew_ms = acquired_ms + int(lock_ms * _RENEW_AT)

    def locked(self, since_ms: int, lock_ms: int) -> None:
        """Take in that the lock began at `since_ms`, at the earliest, and lasts `lock_ms` (0: as before)."""
        lock_ms = self.lock_ms = lock_ms or self.lock_ms
        self.deadline_ms = since_ms + lock_ms
        self.renew_ms = since_ms + int(lock_ms * _RENEW_AT)
        self.is_renewing = False

    def becomes(self, state: LeaseState) -> None:
        """Change the state. A change that the table does not have is a defect of the caller."""
        assert self.state in VALID_PREVIOUS[state], f"{self}: from {self.state.value} to {state.value}"
        self.state = state

    @property
    def is_held(self) -> bool:
        """Return whether the record is this member's, as far as this member knows."""
        return self.state is not LeaseState.LOST and self.state is not LeaseState.SETTLED

    @property
    def is_lost(self) -> bool:
        """Return whether the lease ended without an acknowledgement."""
        return self.state is LeaseState.LOST

    @property
    def attempt(self) -> int:
        """Return the number of the current attempt: those of other members, by the delivery count, and of this one."""
        return max(1, self.delivery_count) - 1 + max(1, self.attempts)

    def __repr__(self) -> str:
        return f"Lease({self.topic_partition}@{self.offset}, {self.state.value}, delivery {self.delivery_count})"
