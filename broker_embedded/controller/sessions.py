"""Sessions of brokers: known to the active controller only, never written to the metadata log.

A new active controller has no heartbeats yet: every registered broker gets a whole session to call, and
a new process may take over a broker's id at once, because there is no sign that the old one lives. The newer broker
epoch fences the old one if it does. One broker has less than a session: the node whose controller was active before,
because its silence is why there is a new one. It has been counted already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker_embedded.common.clock import Clock


class _Session:
    __slots__ = ("has_called", "last_contact_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, now_ms: int) -> None:
        self.last_contact_ms = now_ms
        self.has_called = False
        self.metadata_offset = -1
        self.shutdown_offset: int | None = None


class BrokerSessions:
    """The sessions of registered brokers. The clock moves them; nothing here has a timer."""

    def __init__(self, *, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, _Session] = {}
        self._checked_ms = clock.monotonic_ms()

    @property
    def check_interval_ms(self) -> int:
        """Return how often to call `expired`."""
        return max(self.timeout_ms // 8, 1)

    def restart(self, silence_ms: Mapping[int, int]) -> None:
        """Start a new term. `silence_ms`: for how long each node has not responded.

        Everybody gets at least a third of a session, in which several heartbeats are due, to call the new controller.
        """
        now_ms = self._checked_ms = self._clock.monotonic_ms()
        longest_ms = self.timeout_ms * 2 // 3
        self._sessions = {node: _Session(now_ms - min(silent_ms, longest_ms)) for node, silent_ms in silence_ms.items()}

    def touch(self, node: int, *, metadata_offset: int = -1) -> None:
        """Restart the session of a broker that sent a heartbeat."""
        session = self._session(node)
        session.last_contact_ms = self._clock.monotonic_ms()
        session.has_called = True
        session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def begin(self, node: int) -> None:
        """Start a new session of a broker that registered."""
        self._sessions.pop(node, None)
        self.touch(node)

    def end(self, node: int, *, linger_ms: int) -> None:
        """End the session of a dead broker: its successor may come at once. It expires when a session has passed, or
        `linger_ms`."""
        session = self._sessions[node] = _Session(self._clock.monotonic_ms())
        session.last_contact_ms += max(0, linger_ms - self.timeout_ms)

    def forget(self, node: int) -> None:
        self._sessions.pop(node, None)

    def is_alive(self, node: int) -> bool:
        """Return whether the broker sent a heartbeat to this controller within its session."""
        session = self._sessions.get(node)
        if session is None or not session.has_called:
            return False
        return self._clock.monotonic_ms() - session.last_contact_ms < self.timeout_ms

    def expired(self, nodes: Iterable[int]) -> list[int]:
        """Return the nodes of `nodes` that sent no heartbeat for a whole session.

        If this call comes late, the loop was busy or the process was stopped, and heartbeats may be unread: every node
        gets the lateness as extra time. A slow controller must not declare its brokers dead.
        """
        now_ms = self._clock.monotonic_ms()
        lateness_ms = now_ms - self._checked_ms - self.check_interval_ms
        self._checked_ms = now_ms
        if lateness_ms > 0:
            for session in self._sessions.values():
                later_ms = min(session.last_contact_ms + lateness_ms, now_ms)
                session.last_contact_ms = max(session.last_contact_ms, later_ms)
        return [node for node in nodes if now_ms - self._session(node).last_contact_ms >= self.timeout_ms]

    # --- controlled shutdown

    def set_shutdown_offset(self, node: int, offset: int) -> None:
        """Set the metadata offset at which others lead the broker's partitions."""
        self._session(node).shutdown_offset = offset

    def have_seen_shutdown(self, node: int, active: Iterable[int]) -> bool:
        """Return whether all `active` brokers have replayed that offset: then none sends to this broker any more."""
        offset = self._session(node).shutdown_offset
        if offset is None:
            return True  # another controller began it; that the leaders have moved has to do
        return all(self._session(other).metadata_offset >= offset for other in active if other != node)

    def _session(self, node: int) -> _Session:
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = _Session(self._clock.monotonic_ms())
        return session
