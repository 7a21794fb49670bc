"""The classic group protocol as a sans-IO state machine: `step(group, event, now_ms) -> effects`.

`states` holds the table of states, `events` and `effects` what goes in and comes out, `group` the data of one group,
and one file per kind of event (`join`, `sync`, `heartbeat`, `leave`, `expiry`) what happens. `rebalance` holds the
transitions that these share, `machine` the table that binds events to handlers.
"""

from .answers import ClassicHeartbeatAnswer, JoinAnswer, JoinedMember, LeaveAnswer, LeftMember, SyncAnswer
from .effects import AnswerRequest, Effect, GroupSnapshot, MemberSnapshot, Store
from .events import Event, Heartbeat, Join, Leave, Leaving, Stored, Sync, Tick, Unload
from .group import ClassicGroup
from .machine import step
from .states import VALID_PREVIOUS, State

__all__ = [
    "VALID_PREVIOUS",
    "AnswerRequest",
    "ClassicGroup",
    "ClassicHeartbeatAnswer",
    "Effect",
    "Event",
    "GroupSnapshot",
    "Heartbeat",
    "Join",
    "JoinAnswer",
    "JoinedMember",
    "Leave",
    "LeaveAnswer",
    "Leaving",
    "LeftMember",
    "MemberSnapshot",
    "State",
    "Store",
    "Stored",
    "Sync",
    "SyncAnswer",
    "Tick",
    "Unload",
    "step",
]
