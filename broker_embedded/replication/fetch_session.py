"""Fetch sessions (KIP-227): a client with many partitions sends, and receives, only changes.

A session is the list of partitions that a client reads, kept by the broker under an id; the epoch counts the requests,
so that a lost or repeated one is noticed. The cache holds `max.incremental.fetch.session.cache.slots` sessions; when it
is full the least recently used one that has been idle for two minutes makes room, otherwise the client gets a
sessionless answer.
"""

from __future__ import annotations

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MIN_EVICTION_IDLE_MS = 120_000

SessionKey = tuple[str | bytes, int]
"""(topic name or topic id, as the client's version says; partition)."""


class SessionPartition:
    """One partition of a session: the last request and the last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "is_checked",
        "last_fetched_epoch",
        "last_stable_offset",
        "log_start_offset",
        "max_bytes",
        "partition",
        "reader_log_start_offset",
        "topic",
    )

    def __init__(self, topic: str | bytes, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.reader_log_start_offset = -1
        """Log start offset of a follower."""
        self.is_checked = False
        """A follower's position was found to be a place in the leader's log."""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def ask_as(self, other: SessionPartition) -> None:
        """Update the request of the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.reader_log_start_offset = other.reader_log_start_offset
        self.is_checked = False


class FetchSession:
    """The partitions of one client, in order; a served partition moves to the end, so that none starves."""

    __slots__ = (
        "awake",
        "broker_epoch",
        "epoch",
        "is_full_answer",
        "is_over",
        "last_used_ms",
        "looked_at_all_ms",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.is_full_answer = False
        self.last_used_ms = now_ms
        self.partitions: dict[SessionKey, SessionPartition] = {}
        self.awake: dict[SessionKey, SessionPartition] = {}
        """Partitions that the follower's next fetch reads. The others rest (`follower_wakeups`)."""
        self.looked_at_all_ms = now_ms
        self.broker_epoch = -1
        """Fields of the follower's last fetch."""
        self.is_over = False

    def rotate(self, key: SessionKey) -> None:
        """Move `key` to the end: it was served, so the others come first next time."""
        self.partitions[key] = self.partitions.pop(key)
        if key in self.awake:
            self.awake[key] = self.awake.pop(key)


class FetchSessionCache:
    """All sessions of one broker."""

    def __init__(self, *, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, *, uses_topic_ids: bool) -> FetchSession | None:
        """Create a session; None if the cache is full of sessions in use."""
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots and not self._evict_idle(now_ms):
            return None
        session = FetchSession(self._next_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        self._next_id = self._next_id % 0x7FFFFFFF + 1
        self._sessions[session.session_id] = session
        return session

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        """Return the session of an incremental request, its epoch advanced; BrokerError if the client lost track."""
        session = self._sessions.get(session_id)
        if session is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if session.uses_topic_ids != uses_topic_ids:
            raise BrokerError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} was started {'with' if session.uses_topic_ids else 'without'} topic ids",
            )
        if session.epoch != epoch:
            raise BrokerError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at epoch {session.epoch}, the request says {epoch}",
            )
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_over = True

    def partitions_of(self, session_id: int) -> list[SessionKey]:
        """Return the partitions of a session, none for an unknown one. Keeps its age."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions)

    def _evict_idle(self, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < MIN_EVICTION_IDLE_MS:
            return False
        self.remove(oldest.session_id)
        return True
