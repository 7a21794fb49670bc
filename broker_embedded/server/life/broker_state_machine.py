"""Which step a broker's life takes next: decisions without a loop, a socket or a clock.

    NOT_RUNNING -> STARTING                     it wants to join: registers until the controller lets it
                -> RECOVERY                     registered and fenced: catches up with the metadata
                -> RUNNING                      unfenced: leads, follows, is found by clients
                -> PENDING_CONTROLLED_SHUTDOWN  it wants to go: serves on while others take over
                -> SHUTTING_DOWN                the controller has let it go, or it goes without asking further

The names are those of Kafka's BrokerState. A running broker that is fenced, because nothing was heard of it for a
while, stays RUNNING and gets in again by its next heartbeat. One whose registration is gone registers again.
"""

from __future__ import annotations

from enum import IntEnum

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

MAX_REGISTRATION_BACKOFF_MS = 200
SHUTDOWN_HEARTBEAT_MS = 20
"""Heartbeat interval of a broker that waits for its shutdown: shorter than the usual one."""
NO_EPOCH = -1


class BrokerState(IntEnum):
    """Numbered as Kafka's BrokerState, which its metrics show."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@fact
class Register:
    """Send a BrokerRegistration."""


@fact
class Beat:
    """Send a BrokerHeartbeat."""

    epoch: int
    want_fence: bool
    want_shut_down: bool


Step = Register | Beat | None
"""The next request; None: no more."""

REFUSED_FOR_GOOD = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Asking again would not help."""


class BrokerStateMachine:
    """The state machine. Every `on_*` returns after how many milliseconds `next_step` is due."""

    def __init__(self, *, heartbeat_interval_ms: int) -> None:
        self._interval_ms = heartbeat_interval_ms
        self.state = BrokerState.NOT_RUNNING
        self.epoch = NO_EPOCH
        self.is_fenced = True
        self.has_storage = True
        """Whether a log directory is left. Without one the broker stays fenced, so that others lead its partitions."""
        self._refusals = 0

    @property
    def wants_shut_down(self) -> bool:
        return self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN

    def start(self) -> None:
        self.state = BrokerState.STARTING

    def begin_shutdown(self) -> bool:
        """Return whether to ask a controller first: a broker that was never registered stops at once."""
        is_known = self.epoch != NO_EPOCH and self.state in (BrokerState.RECOVERY, BrokerState.RUNNING)
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN if is_known else BrokerState.SHUTTING_DOWN
        return is_known

    def end(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN

    def next_step(self) -> Step:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return None
        if self.epoch == NO_EPOCH:
            return Register()
        return Beat(epoch=self.epoch, want_fence=not self.has_storage, want_shut_down=self.wants_shut_down)

    def may_get_in_at(self, metadata_offset: int) -> bool:
        """Return whether a fenced broker has caught up: a heartbeat that says so unfences it."""
        is_waiting = self.is_fenced and self.has_storage and self.epoch != NO_EPOCH
        return is_waiting and metadata_offset >= self.epoch

    # --- answers

    def on_registered(self, epoch: int, *, metadata_offset: int) -> int:
        self.epoch = epoch
        self.is_fenced = True
        self._refusals = 0
        if self.state is BrokerState.STARTING:
            self.state = BrokerState.RECOVERY
        return 0 if metadata_offset >= epoch else self._interval_ms

    def on_registration_refused(self) -> int:
        """Retry later: mostly the previous process with this id still has a session."""
        self._refusals += 1
        return min(10 << min(self._refusals, 10), MAX_REGISTRATION_BACKOFF_MS)

    def on_heartbeat_answered(self, *, is_fenced: bool, should_shut_down: bool) -> int:
        self.is_fenced = is_fenced
        if self.wants_shut_down:
            if should_shut_down:
                self.state = BrokerState.SHUTTING_DOWN
            return min(SHUTDOWN_HEARTBEAT_MS, self._interval_ms)
        if not is_fenced and self.state is BrokerState.RECOVERY:
            self.state = BrokerState.RUNNING
        return self._interval_ms

    def on_heartbeat_refused(self, error: ErrorCode) -> int:
        """Register again: another or no incarnation is registered under this id."""
        if self.wants_shut_down:
            self.state = BrokerState.SHUTTING_DOWN
            return 0
        if error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self.epoch = NO_EPOCH
            self.is_fenced = True
            return 0
        return self._interval_ms

    def on_no_answer(self) -> int:
        """Return the delay to the next heartbeat: the controller did not answer for a while."""
        return SHUTDOWN_HEARTBEAT_MS if self.wants_shut_down else self._interval_ms // 4
