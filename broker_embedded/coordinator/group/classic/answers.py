"""Responses to members. The API layer encodes them in the client's version."""

from __future__ import annotations

from typing import TypeAlias

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

UNKNOWN_MEMBER_ID = ""
UNKNOWN_GENERATION = -1
NO_LEADER = ""
NO_ASSIGNMENT = b""


@fact
class JoinedMember:
    """A member as the leader sees it: enough to compute an assignment."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@fact
class JoinAnswer:
    """`members` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@fact
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = NO_ASSIGNMENT


@fact
class ClassicHeartbeatAnswer:
    error: ErrorCode = ErrorCode.NONE


@fact
class LeftMember:
    member_id: str
    group_instance_id: str | None
    error: ErrorCode = ErrorCode.NONE


@fact
class LeaveAnswer:
    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


AnyAnswer: TypeAlias = JoinAnswer | SyncAnswer | ClassicHeartbeatAnswer | LeaveAnswer
