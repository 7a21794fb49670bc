"""Appends of a leader that wait to be committed, in log order."""

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
        """Everything below `end_offset` is, and has been published."""
        while self._waiting and self._waiting[0][0] < end_offset:
            self._feed.call(partial(self._waiting.popleft()[1], None))

    def refuse(self, error: BrokerError) -> None:
        """Whether they will be committed is not known: another leader decides."""
        while self._waiting:
            self._feed.call(partial(self._waiting.popleft()[1], error))
