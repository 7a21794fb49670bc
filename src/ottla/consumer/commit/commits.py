"""When to commit: every so many records or seconds, one commit at a time; or before records are handled."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.arguments import names_arguments
from ottla.quantities import Span, count, milliseconds_of, seconds


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicy:
    """Commit every `every_records` finished records or `every_s` (seconds, or a timedelta), whichever comes first.

    It bounds what a crash repeats: at most the records in flight plus one interval. Partitions are always committed
    when they are revoked and when the consumer closes.
    """

    every_records: int = 10_000
    every_s: Span = 1.0

    def __post_init__(self) -> None:
        count("CommitPolicy", "every_records", self.every_records)
        seconds("CommitPolicy", "every_s", self.every_s)


@dataclass(frozen=True, slots=True)
class AtMostOnce:
    """Commit before handling: no record is ever handed to a handler twice, and a crash loses what was handed out.

    A run is handed out when the coordinator has acknowledged a position behind it. So a crash loses at most the runs in
    flight, one per partition; a graceful stop or a rebalance loses nothing. A record that fails is not tried again: it
    becomes a dead letter, or, without a dead letter topic, it is dropped and counted.
    """


@dataclass(frozen=True, slots=True)
class InTransactions:
    """Commit nothing: offsets are committed by the transactions that their records join.

    For a `Consumer` or `AsyncConsumer` whose records go through `transaction.send_offsets(records, consumer)`. A commit
    of its own beside them could come late, and put the group back behind a transaction.
    """


class CommitTimer:
    """Decides when the next commit is due. One commit is in flight at a time, except those that a caller asks for. A
    failed one is repeated after `RETRY_MS`."""

    __slots__ = ("_counted", "_in_flight", "_next_ms", "_not_before_ms", "_policy")

    RETRY_MS = 500

    def __init__(self, policy: CommitPolicy, now_ms: int) -> None:
        self._policy = policy
        self._counted = 0
        self._in_flight = 0
        self._not_before_ms = now_ms
        self._next_ms = now_ms + self._interval_ms

    @property
    def _interval_ms(self) -> int:
        return milliseconds_of(self._policy.every_s)

    @property
    def is_in_flight(self) -> bool:
        return self._in_flight > 0

    @property
    def next_ms(self) -> int:
        """When the next commit is due by time alone."""
        return self._next_ms

    def count(self, records: int) -> None:
        self._counted += records

    def is_due(self, now_ms: int) -> bool:
        is_time = now_ms >= self._next_ms
        is_many = self._counted >= self._policy.every_records
        return not self._in_flight and (is_time or is_many)

    def may_be_sent(self, now_ms: int) -> bool:
        """Return whether a commit that runs wait for may be sent now."""
        return not self._in_flight and now_ms >= self._not_before_ms

    def nothing_to_commit(self, now_ms: int) -> None:
        self._counted = 0
        self._next_ms = now_ms + self._interval_ms

    def sent(self, now_ms: int) -> None:
        self._in_flight += 1
        self._counted = 0
        self._next_ms = now_ms + self._interval_ms

    def answered(self) -> None:
        self._in_flight = max(0, self._in_flight - 1)

    def failed(self, now_ms: int) -> None:
        self.answered()
        self._next_ms = self._not_before_ms = now_ms + self.RETRY_MS
