"""Share sessions: which partitions a member fetches from this broker, and how its requests follow one another.

    epoch 0        opens, and ends the session that the member had
    epoch 1, 2, …  the next request; after 2³¹ - 1 comes 1
    epoch -1       closes: acknowledgements are taken, the rest is released

A session ends with the connection that it was last used on. ShareFetch and ShareAcknowledge share its epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

OPENING_EPOCH = 0
FINAL_EPOCH = -1
LONGEST_MEMBER_ID = 36
"""Characters; as long as a UUID."""
_LAST_EPOCH = 0x7FFFFFFF

TopicIdPartition = tuple[bytes, int]


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    """One member's session on this broker."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions: dict[TopicIdPartition, None] = {}
        """In the order in which they are looked at next."""

    def add(self, partitions: Iterable[TopicIdPartition]) -> None:
        for each in partitions:
            self.partitions.setdefault(each)

    def forget(self, partitions: Iterable[TopicIdPartition]) -> None:
        for each in partitions:
            self.partitions.pop(each, None)

    def rotate(self, partition: TopicIdPartition) -> None:
        """Put a partition that was served behind the others."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessions:
    """The sessions of one broker."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_connection: dict[object, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def open(self, key: SessionKey, connection: object, *, limit: int) -> ShareSession:
        """Return a new session. Raises SHARE_SESSION_LIMIT_REACHED with `limit` others open."""
        self.close(key)
        if len(self._sessions) >= limit:
            raise BrokerError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"{len(self._sessions)} share sessions are open: group.share.max.share.sessions is {limit}",
            )
        session = self._sessions[key] = ShareSession(key, connection)
        self._of_connection.setdefault(connection, {})[key] = None
        return session

    def resume(self, key: SessionKey, epoch: int, connection: object) -> ShareSession:
        """Return the session that a request continues, its epoch advanced.

        Raises SHARE_SESSION_NOT_FOUND and INVALID_SHARE_SESSION_EPOCH: the member opens another one.
        """
        session = self.find(key)
        if epoch != session.epoch:
            raise BrokerError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"share session epoch: found {epoch}, wanted {session.epoch}",
            )
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        if session.connection is not connection:
            self._unbind(session)
            session.connection = connection
            self._of_connection.setdefault(connection, {})[key] = None
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Return the session. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise BrokerError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id!r} of group {key.group_id!r} has no share session on this broker",
            )
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """End a session, and return it; None if there was none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._unbind(session)
        return session

    def of_connection(self, connection: object) -> list[SessionKey]:
        """Return the sessions that end with a connection."""
        return list(self._of_connection.get(connection, ()))

    def _unbind(self, session: ShareSession) -> None:
        keys = self._of_connection.get(session.connection)
        if keys is not None:
            keys.pop(session.key, None)
            if not keys:
                del self._of_connection[session.connection]
