"""The classic group protocol as a sans-IO state machine: `step(group, event, now_ms) -> effects`.

`states` holds the table of states, `events` and `effects` what goes in and comes out, `group` the data of one group,
and one file per kind of event (`join`, `sync`, `heartbeat`, `leave`, `expiry`) what happens. `rebalance` holds the
transitions that these share, `machine` the table that binds events to handlers.
"""

from .answers import ClassicHeartbeatAnswer as ClassicHeartbeatAnswer
from .answers import JoinAnswer as JoinAnswer
from .answers import JoinedMember as JoinedMember
from .answers import LeaveAnswer as LeaveAnswer
from .answers import LeftMember as LeftMember
from .answers import SyncAnswer as SyncAnswer
from .effects import AnswerRequest as AnswerRequest
from .effects import Effect as Effect
from .effects import GroupSnapshot as GroupSnapshot
from .effects import MemberSnapshot as MemberSnapshot
from .effects import Store as Store
from .events import Event as Event
from .events import Heartbeat as Heartbeat
from .events import Join as Join
from .events import Leave as Leave
from .events import Leaving as Leaving
from .events import Stored as Stored
from .events import Sync as Sync
from .events import Tick as Tick
from .events import Unload as Unload
from .group import ClassicGroup as ClassicGroup
from .machine import step as step
from .states import VALID_PREVIOUS as VALID_PREVIOUS
from .states import State as State
