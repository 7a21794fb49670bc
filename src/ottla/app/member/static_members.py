"""Two processes with one `group.instance.id`, as opposed to a member that was merely slow.

Where the client names its id in every heartbeat (librdkafka) the coordinator answers that another member took the id
over. aiokafka names it only when it joins: it learns no more than that it is not known any more, joins again, and takes
the id back, for ever. But a coordinator forgets a member by itself only after `session.timeout.ms` of silence. Whoever
loses its partitions sooner than that after it got them lost them to somebody; who does so several times in a row shares
its id. The one that began first counts first, so that it ends and the newer one stays, as in threads.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import FencedError


class SharedInstanceId:
    """Counts how often the partitions of one static member went sooner than its session can end."""

    MOST_TAKEOVERS: Final = 3
    """One may be a rolling restart, or an administrator who removed the member."""

    def __init__(self, instance_id: str, *, session_timeout_ms: int) -> None:
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._assigned_at_ms: int | None = None
        self._takeovers = 0

    def assigned(self, now_ms: int) -> None:
        """Record that the coordinator gave this member its partitions."""
        self._assigned_at_ms = now_ms

    def lost(self, now_ms: int) -> FencedError | None:
        """Record that the coordinator no longer knows this member. Returns the error to end with, once it is
        certain."""
        since_ms, self._assigned_at_ms = self._assigned_at_ms, None
        if since_ms is None:
            return None
        if now_ms - since_ms >= self._session_timeout_ms:
            self._takeovers = 0
            return None
        self._takeovers += 1
        if self._takeovers < self.MOST_TAKEOVERS:
            return None
        return FencedError(
            f"another member runs with the same group.instance.id: {self._instance_id!r} was taken from this member "
            f"{self._takeovers} times in a row, each time sooner than session.timeout.ms={self._session_timeout_ms}"
        )
