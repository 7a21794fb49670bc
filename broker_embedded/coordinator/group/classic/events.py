"""Events of a classic group. `ticket` identifies the request that waits for a response; the machine never interprets
it. All randomness (a fresh member id) and time (`now_ms` of `step`) comes with the event."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import TypeAlias

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

Ticket: TypeAlias = Hashable
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


@fact
class Join:
    """JoinGroup. `new_member_id` is the id for a member without one; made by the caller, so that the machine needs no
    randomness.
    """

    ticket: Ticket
    member_id: str
    new_member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool = True
    """JoinGroup 4 and later: a dynamic member gets its id first and joins with it (KIP-394)."""
    can_skip_assignment: bool = True
    """JoinGroup 9 and later: a restarted static leader may skip the assignment (KIP-814)."""
    reason: str = ""


@fact
class Sync:
    """SyncGroup. Only the leader's `assignments` count."""

    ticket: Ticket
    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@fact
class Heartbeat:
    ticket: Ticket
    member_id: str
    generation: int
    group_instance_id: str | None = None


@fact
class Leaving:
    """One member of a Leave. A static member may be named by its instance id alone, as an operator does (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@fact
class Leave:
    ticket: Ticket
    members: tuple[Leaving, ...]


@fact
class Stored:
    """Result of a `Store` effect: durable, or failed with an error."""

    store_id: int
    error: ErrorCode = ErrorCode.NONE


@fact
class Tick:
    """Time has passed. May come at any moment; needed at the group's `wake_at_ms`."""


@fact
class Unload:
    """The coordinator loses the group: every waiting member gets `error`, and the group is dead."""

    error: ErrorCode


Event: TypeAlias = Join | Sync | Heartbeat | Leave | Stored | Tick | Unload
