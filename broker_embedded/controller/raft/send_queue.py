"""When each peer is to be asked (again): one request per peer at a time, failures with backoff."""

from __future__ import annotations

from collections.abc import Iterable


class SendQueue:
    """Requests of one kind that the present role owes its peers."""

    def __init__(self, *, retry_ms: int, max_retry_ms: int) -> None:
        self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._due: dict[int, int] = {}
        self._failures: dict[int, int] = {}

    def begin(self, peers: Iterable[int], *, now_ms: int) -> None:
        """Start a new role: send to all `peers` now, and drop requests of the previous role."""
        self._due = dict.fromkeys(peers, now_ms)
        self._failures = {}

    def clear(self) -> None:
        self.begin((), now_ms=0)

    @property
    def next_due_ms(self) -> int | None:
        return min(self._due.values(), default=None)

    def take_due(self, now_ms: int) -> list[int]:
        """The peers to ask now. Each is asked once until `again` or `failed`."""
        due = [peer for peer, at_ms in self._due.items() if at_ms <= now_ms]
        for peer in due:
            del self._due[peer]
        return due

    def again(self, peer: int, at_ms: int) -> None:
        """Schedule the next request at `at_ms`, after a response."""
        self._failures.pop(peer, None)
        self._due[peer] = at_ms

    def failed(self, peer: int, *, now_ms: int) -> None:
        """Schedule a retry after a failure."""
        failures = self._failures.get(peer, 0)
        self._failures[peer] = failures + 1
        self._due[peer] = now_ms + min(self._retry_ms << min(failures, 16), self._max_retry_ms)
