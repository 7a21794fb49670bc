"""Effects of a classic group."""

from __future__ import annotations

from typing import TypeAlias

from ottla_wire.facts import fact

from .answers import AnyAnswer
from .events import Ticket


@fact
class AnswerRequest:
    """Answer the request behind `ticket`. Each ticket is answered exactly once."""

    ticket: Ticket
    answer: AnyAnswer


@fact
class MemberSnapshot:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@fact
class GroupSnapshot:
    """One generation as the log keeps it (GroupMetadataValue). Without members the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberSnapshot, ...]


@fact
class Store:
    """Append `snapshot` to the log, then say so with `Stored(store_id)`."""

    store_id: int
    snapshot: GroupSnapshot


Effect: TypeAlias = AnswerRequest | Store
