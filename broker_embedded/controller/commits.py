"""Passes committed metadata to this node's subscribers: each batch once, in log order.

A subscriber or a waiting controller may append again from within its callback, and with a single voter that commits at
once. So what is due stands in a queue: everybody has seen a batch before anybody sees the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker_embedded.metadata.records import MetadataRecord


class CommittedBatch(NamedTuple):
    """Committed records in log order. `last_offset` is the offset of the last record.

    `records` is empty where the quorum wrote for itself (a new leader's first batch): the offset moves all the same.
    """

    records: Sequence[MetadataRecord]
    last_offset: int
    epoch: int


Subscriber = Callable[[CommittedBatch], None]


class _Subscription:
    __slots__ = ("next_offset", "subscriber")

    def __init__(self, subscriber: Subscriber, next_offset: int) -> None:
        self.subscriber = subscriber
        self.next_offset = next_offset


class CommitFeed:
    """The committed batches so far, and their subscribers."""

    def __init__(self) -> None:
        self._history: list[CommittedBatch] = []
        self._subscriptions: list[_Subscription] = []
        self._due: deque[CommittedBatch | Callable[[], None]] = deque()
        self._is_delivering = False

    @property
    def end_offset(self) -> int:
        """Everything below was published."""
        return self._history[-1].last_offset + 1 if self._history else 0

    @property
    def last_epoch(self) -> int:
        """Return the highest epoch published; 0 without one."""
        return max((each.epoch for each in self._history), default=0)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Subscribe, starting with the history as one batch: topics that were created and deleted again are left out,
        and open no log.
        """
        subscription = _Subscription(subscriber, self.end_offset)  # also when called from within a delivery
        self._subscriptions.append(subscription)
        if self._history:
            everything = [record for batch in self._history for record in batch.records]
            last = self._history[-1]
            subscriber(CommittedBatch(everything, last.last_offset, last.epoch))

    def restore(self, batches: Sequence[CommittedBatch]) -> None:
        """Publish what an earlier start committed; before any subscription."""
        self._history += batches

    def publish(self, batch: CommittedBatch) -> None:
        self._history.append(batch)
        self._due.append(batch)
        self._deliver()

    def call(self, callback: Callable[[], None]) -> None:
        """Run `callback` once all subscribers have seen what was published so far: now, unless called from a
        callback.
        """
        self._due.append(callback)
        self._deliver()

    def _deliver(self) -> None:
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._due:
                due = self._due.popleft()
                if isinstance(due, CommittedBatch):
                    for subscription in self._subscriptions:
                        if due.last_offset >= subscription.next_offset:
                            subscription.next_offset = due.last_offset + 1
                            subscription.subscriber(due)
                else:
                    due()
        finally:
            self._is_delivering = False
