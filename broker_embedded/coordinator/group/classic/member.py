"""One member of a classic group, from its first JoinGroup with a known id to its removal."""

from __future__ import annotations

from collections.abc import Collection

from .answers import NO_ASSIGNMENT, JoinedMember
from .effects import MemberSnapshot
from .events import Join, Protocols, Ticket


class ClassicMember:
    """Changed only by the machine. A member waits for at most one join and one sync answer at a time."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Ticket | None = None
        self.awaiting_sync: Ticket | None = None
        self.is_new = False
        self.session_deadline_ms: int | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.awaiting_join is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        """A member whose request we hold cannot send heartbeats, so silence says nothing about it.

        Except a new one: it may have given up on a long JoinGroup and come back under another id, and would otherwise
        stay for ever as a ghost.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata_of(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        """Return the member's preferred protocol among the common ones."""
        return next(name for name, _ in self.protocols if name in candidates)

    def accept(self, join: Join) -> None:
        """Take over the member's fields of a new JoinGroup."""
        self.protocols = join.protocols
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = join.rebalance_timeout_ms

    def as_joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(
            member_id=self.member_id, group_instance_id=self.group_instance_id, metadata=self.metadata_of(protocol)
        )

    def as_snapshot(self, protocol: str | None, assignment: bytes) -> MemberSnapshot:
        return MemberSnapshot(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_of(protocol),
            assignment=assignment,
        )
