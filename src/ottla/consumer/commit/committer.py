"""The commits of a session: when they are sent, their offsets, and the effects of their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ottla.consumer.commit.claims import Claims
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy, CommitTimer, InTransactions
from ottla.consumer.commit.positions import Offsets, Positions
from ottla.consumer.model.effects import Commit, Dispatch, Effect, Notice, PassInTransaction
from ottla.consumer.model.events import CommitFailed
from ottla.consumer.partitions.flow import FlowControl
from ottla.consumer.partitions.handler_rate import RateMeter
from ottla.consumer.partitions.partition import PartitionState
from ottla.records import TopicPartition


class Committer:
    """The commits of one session: at most one in flight, and a final one before a partition is revoked."""

    __slots__ = ("_commits_nothing", "_partitions", "_positions", "_timer", "claims")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionState],
        policy: CommitPolicy | AtMostOnce | InTransactions,
        *,
        flow: FlowControl,
        now_ms: int,
        limits: Mapping[str, RateMeter] = MappingProxyType({}),
    ) -> None:
        is_at_most_once = isinstance(policy, AtMostOnce)
        self._partitions = partitions
        self._positions = Positions(flow, is_at_most_once=is_at_most_once, limits=limits)
        self._commits_nothing = isinstance(policy, InTransactions)
        self._timer = CommitTimer(policy if isinstance(policy, CommitPolicy) else CommitPolicy(), now_ms)
        self.claims = Claims()
        """Runs that are handed out when the commit behind them is acknowledged; empty unless at most once."""

    @property
    def next_ms(self) -> int:
        """When the next commit is due by time alone."""
        return self._timer.next_ms

    def count(self, records: int) -> None:
        """Count records that have become done."""
        self._timer.count(records)

    def collect(self, now_ms: int) -> Offsets:
        """Return the positions that changed since the last commit. The caller commits them and passes in the answer."""
        offsets = self._positions.collect(self._partitions.values(), now_ms)
        if self._commits_nothing:
            return {}
        if offsets:
            self._timer.sent(now_ms)
        return offsets

    def take_notices(self) -> list[Notice]:
        """Remove and return the log events since the last call."""
        return self._positions.take_notices()

    def commit_if_due(self, now_ms: int, effects: list[Effect]) -> None:
        is_wanted = self.claims.want_a_commit and self._timer.may_be_sent(now_ms)
        if not is_wanted and not self._timer.is_due(now_ms):
            return
        self.claims.sent()
        passed = self._positions.passes(self._partitions.values())
        if passed:
            effects.append(PassInTransaction(passed))
        offsets = self.collect(now_ms)
        if offsets:
            effects.append(Commit(offsets))
        else:
            self._timer.nothing_to_commit(now_ms)
            # Records that were claimed before and came back untouched are committed already.
            effects += [Dispatch(run) for run in self.claims.acknowledged()]

    def commit_last(self, states: Sequence[PartitionState], effects: list[Effect]) -> None:
        """Commit partitions that are revoked once the commit was answered."""
        if self._timer.is_in_flight:
            # The commit in flight may be refused because of the rebalance. Only the final commit is waited for, so it
            # names every position.
            for state in states:
                state.committed = None
        offsets = self._positions.collect(states, is_final=True)
        if offsets and not self._commits_nothing:
            effects.append(Commit(offsets, is_final=True))

    def succeeded(self, effects: list[Effect]) -> None:
        """Note that the coordinator stored the commit in flight."""
        self._timer.answered()
        effects += [Dispatch(run) for run in self.claims.acknowledged()]

    def failed(self, event: CommitFailed, now_ms: int, effects: list[Effect]) -> None:
        """Note that the commit in flight failed. It is repeated."""
        self._timer.failed(now_ms)
        self.claims.failed()
        for state in self._partitions.values():
            state.committed = None  # unknown: the next commit names every position again
        level = "info" if event.is_fenced else "warning"
        effects.append(Notice("commit_failed", level, {"error": event.error, "is_fenced": event.is_fenced}))
