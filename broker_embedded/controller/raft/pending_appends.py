"""Appends of a leader that wait for their commit, in log order.

They outlive the leadership: the next leader has what was appended, and commits it, or lacks it, and then this node's
log is truncated. A caller that gets NOT_CONTROLLER before that is known retries, and finds its change done.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.commits import CommitFeed
from broker_embedded.controller.quorum import OnDone


class PendingAppends:
    """Each is answered once, and after everything that was published before."""

    def __init__(self, feed: CommitFeed) -> None:
        self._feed = feed
        self._waiting: deque[tuple[int, OnDone]] = deque()

    def add(self, last_offset: int, on_done: OnDone) -> None:
        self._waiting.append((last_offset, on_done))

    def committed(self, end_offset: int) -> None:
        """Complete what is below `end_offset`, which is committed and published."""
        while self._waiting and self._waiting[0][0] < end_offset:
            self._feed.call(partial(self._waiting.popleft()[1], None))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def truncated(self, offset: int, error: BrokerError) -> None:
        """Fail appends that reach `offset` or further: they are truncated and never committed."""
        kept = deque(each for each in self._waiting if each[0] < offset)
        lost = [on_done for last_offset, on_done in self._waiting if last_offset >= offset]
        self._waiting = kept
        for on_done in lost:
            self._feed.call(partial(on_done, error))

    def refuse(self, error: BrokerError) -> None:
        """Fail all waiters; the outcome is unknown."""
        while self._waiting:
            self._feed.call(partial(self._waiting.popleft()[1], error))
