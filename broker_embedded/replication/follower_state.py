"""A leader's view of one follower: its position, and since when it has kept up."""

from __future__ import annotations

NEVER_MS = -(1 << 60)
"""Before every clock's start."""

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class FollowerState:
    """A follower as its fetches show it.

    "Caught up at t" means: by what it asked for, it had at time t everything that the leader had at t. A follower that
    is always one fetch behind a busy leader is caught up as of its previous fetch (KIP-16).
    """

    __slots__ = (
        "_leader_end_offset_at_last_fetch",
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "node_id",
        "sent_high_watermark",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS
        self.broker_epoch = UNKNOWN_EPOCH
        """Broker epoch of its last fetch: a restarted broker is not the one that was in sync (KIP-903)."""
        self.sent_high_watermark = UNKNOWN_OFFSET
        self._leader_end_offset_at_last_fetch = UNKNOWN_OFFSET

    @property
    def has_fetched(self) -> bool:
        return self.log_end_offset != UNKNOWN_OFFSET

    def on_fetch(
        self, *, fetch_offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch at `fetch_offset`: the follower has everything below."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._leader_end_offset_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.last_fetch_ms = now_ms
        self._leader_end_offset_at_last_fetch = leader_end_offset

    def on_leader_epoch(self, *, is_in_sync: bool, leader_end_offset: int, now_ms: int) -> None:
        """Give in-sync followers the whole lag time at the start of a leader epoch, whenever they fetched last."""
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        self.last_fetch_ms = now_ms if is_in_sync else NEVER_MS
        self._leader_end_offset_at_last_fetch = leader_end_offset

    def on_removed(self) -> None:
        """Record its removal from the ISR. Until it fetches again no append waits for it: it may have died a moment
        ago.
        """
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_ms = NEVER_MS

    def is_caught_up(self, *, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether it has everything, or had it at most `max_lag_ms` ago (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
