"""When a session commits and what it names, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.consumer.commit.claims import Claims
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy, CommitTimer, InTransactions
from ottla.consumer.commit.positions import Offsets, Positions
from ottla.consumer.model.effects import Commit, Dispatch, Effect, Notice, PassInTransaction
from ottla.consumer.model.events import CommitFailed
from ottla.consumer.partitions.flow import FlowControl
from ottla.consumer.partitions.partition import PartitionState
from ottla.records import TopicPartition


class Committer:
    """The commits of one session: at most one under way, and the last one of a partition before it goes away."""

    __slots__ = ("_commits_nothing", "_partitions", "_positions", "_timer", "claims")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionState],
        policy: CommitPolicy | AtMostOnce | InTransactions,
        *,
        flow: FlowControl,
        now_ms: int,
    ) -> None:
        is_at_most_once = isinstance(policy, AtMostOnce)
        self._partitions = partitions
        self._positions = Positions(flow, is_at_most_once=is_at_most_once)
        self._commits_nothing = isinstance(policy, InTransactions)
        self._timer = CommitTimer(policy if isinstance(policy, CommitPolicy) else CommitPolicy(), now_ms)
        self.claims = Claims()
        """Runs that are handed out when the commit behind them is acknowledged; empty unless at most once."""

    @property
    def next_ms(self) -> int:
        """When the time alone makes the next commit due."""
        return self._timer.next_ms

    def count(self, records: int) -> None:
        """So many more are done."""
        self._timer.count(records)

    def collect(self, now_ms: int) -> Offsets:
        """The positions that changed since they were named last. Whoever asks commits them, and tells the answer."""
        offsets = self._positions.collect(self._partitions.values())
        if self._commits_nothing:
            return {}
        if offsets:
            self._timer.sent(now_ms)
        return offsets

    def take_notices(self) -> list[Notice]:
        """What there is to say since the last time."""
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
            # What was claimed before, and came back untouched, has its commit already.
            effects += [Dispatch(run) for run in self.claims.acknowledged()]

    def commit_last(self, states: Sequence[PartitionState], effects: list[Effect]) -> None:
        """These partitions go away when this is carried out."""
        if self._timer.is_in_flight:
            # A commit that was sent and not answered may be refused, because the rebalance goes on meanwhile. Only the
            # final one is waited for, so it names every position.
            for state in states:
                state.committed = None
        offsets = self._positions.collect(states, is_final=True)
        if offsets and not self._commits_nothing:
            effects.append(Commit(offsets, is_final=True))

    def succeeded(self, effects: list[Effect]) -> None:
        """The coordinator has stored what was sent."""
        self._timer.answered()
        effects += [Dispatch(run) for run in self.claims.acknowledged()]

    def failed(self, event: CommitFailed, now_ms: int, effects: list[Effect]) -> None:
        """It has not; it is tried again."""
        self._timer.failed(now_ms)
        self.claims.failed()
        for state in self._partitions.values():
            state.committed = None  # Not known any more: the next commit names every position again.
        level = "info" if event.is_fenced else "warning"
        effects.append(Notice("commit_failed", level, {"error": event.error, "is_fenced": event.is_fenced}))
