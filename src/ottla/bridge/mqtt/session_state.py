"""QoS 2 state of clients, which outlives their connections.

A client that comes back within its session expiry finds the packet ids that it has not released: a message with one of
them is not sent to Kafka again. Kept in memory: after the bridge was killed, such a message is written once more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from ottla.bridge.acknowledger import PENDING, Slot

NEVER_MS: Final = -1


class Receipt:
    """A QoS 2 message that came in, until its packet id is released."""

    __slots__ = ("_ids", "code", "packet_id", "slot")

    def __init__(self, packet_id: int, ids: dict[int, Receipt], slot: Slot) -> None:
        self.packet_id = packet_id
        self.code = PENDING
        self.slot = slot
        """Of the connection that waits for the acknowledgement."""
        self._ids = ids

    def settle(self, code: int, reason: str = "") -> None:
        """Record what became of the message, and let the connection that waits for it know."""
        self.code = code
        if code and self._ids.get(self.packet_id) is self:
            del self._ids[self.packet_id]  # refused, or unknown: the next message with this id is a new one
        self.slot.settle(code, reason)


class SessionState:
    """The state of one client id."""

    __slots__ = ("connection", "expires_at_ms", "expiry_s", "kept_receipts", "receipts")

    def __init__(self) -> None:
        self.receipts: dict[int, Receipt] = {}
        self.connection: Any = None
        """The shell's open connection of this client, or None."""
        self.expiry_s = 0
        self.expires_at_ms = NEVER_MS
        self.kept_receipts = 0
        """As they were counted when its connection ended."""


class SessionStates:
    """The states of all clients. Those without a connection are bounded, in number and by the receipts that they have
    together: the oldest is forgotten."""

    def __init__(self, *, most_idle: int, most_receipts: int) -> None:
        self._most_idle = most_idle
        self._most_receipts = most_receipts
        self._kept_receipts = 0
        self._open: dict[str, SessionState] = {}
        self._idle: OrderedDict[str, SessionState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open) + len(self._idle)

    def open(
        self, client_id: str, connection: Any, *, clean_start: bool, expiry_s: int, now_ms: int
    ) -> tuple[SessionState, bool, Any]:
        """Return (the state, whether it was there before, the connection that it is taken from)."""
        state = self._open.get(client_id)
        taken_from = None
        if state is not None:
            taken_from = state.connection
        else:
            state = self._forget(client_id)
            if state is not None and state.expires_at_ms <= now_ms:
                state = None
        is_present = state is not None and not clean_start
        if state is None or clean_start:
            state = SessionState()
        state.connection = connection
        state.expiry_s = expiry_s
        self._open[client_id] = state
        return state, is_present, taken_from

    def close(self, client_id: str, connection: Any, now_ms: int) -> None:
        """Keep the state of a connection that ended, for as long as its client asked for.

        It is kept without receipts as well: where the CONNACK says that there is no session, a client of 5.0 forgets
        what was not acknowledged.
        """
        state = self._open.get(client_id)
        if state is None or state.connection is not connection:
            return  # another connection has taken the client id over
        del self._open[client_id]
        state.connection = None
        if not state.expiry_s:
            return
        state.expires_at_ms = now_ms + state.expiry_s * 1000
        self._idle[client_id] = state
        state.kept_receipts = len(state.receipts)
        self._kept_receipts += state.kept_receipts
        while len(self._idle) > self._most_idle or self._kept_receipts > self._most_receipts:
            self._forget(next(iter(self._idle)))

    def expire(self, now_ms: int) -> None:
        """Forget the states whose time has passed."""
        gone = [name for name, state in self._idle.items() if state.expires_at_ms <= now_ms]
        for name in gone:
            self._forget(name)

    def _forget(self, client_id: str) -> SessionState | None:
        state = self._idle.pop(client_id, None)
        if state is not None:
            self._kept_receipts -= state.kept_receipts
        return state
