"""The partitions that are assigned to a session: they are added, restarted at another offset, and removed.

A partition of a retry chain is never removed or restarted alone: which keys are in the chain is counted over all of it,
so its other partitions are restarted where they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.consumer.commit.committer import Committer
from ottla.consumer.commit.offset_metadata import decode_finished
from ottla.consumer.model.effects import Effect, SeekPartition
from ottla.consumer.outcomes.expiries import Expiries
from ottla.consumer.outcomes.retry_chains import RetryChains
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.log_watch import LogWatch
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.scheduling.route import RouteState
from ottla.records import TopicPartition

_OF_THE_USER = (PauseReason.USER, PauseReason.DRAIN)


class Assignment:
    """The partitions of one session, in the mapping that its other parts read."""

    __slots__ = ("_chains", "_commits", "_expiries", "_flow", "_next_epoch", "_partitions", "_routes", "_watch")

    def __init__(
        self,
        partitions: dict[TopicPartition, PartitionState],
        routes: Mapping[str, RouteState],
        *,
        flow: FlowControl,
        commits: Committer,
        watch: LogWatch,
        expiries: Expiries,
        chains: RetryChains,
    ) -> None:
        self._partitions = partitions
        self._routes = routes
        self._flow = flow
        self._commits = commits
        self._watch = watch
        self._expiries = expiries
        self._chains = chains
        self._next_epoch = 1

    def add(
        self,
        topic_partition: TopicPartition,
        plan: RoutePlan,
        committed: tuple[int, str] | None,
        start: int | None,
        now_ms: int,
        effects: list[Effect],
    ) -> PartitionState:
        """Add a partition. `committed` is the group's offset with its metadata. Without one, `start` is where the
        client begins to read: the group continues from there, however soon the partition is revoked."""
        state = PartitionState(topic_partition, self._take_epoch(), plan, now_ms)
        if committed is not None:
            start = committed[0]
            state.restored = decode_finished(committed[1], committed[0])
        elif plan.keeps_offsets:
            start = None
        elif start is not None and state.tracker.pass_to(start) and plan.is_at_most_once:
            state.claimed = start
        self._watch.assigned(state, None if committed is None else committed[0], start)
        self._partitions[topic_partition] = state
        self._routes[plan.name].add(topic_partition)
        self._chains.attach(state, effects)
        return state

    def stop_work(self, state: PartitionState) -> None:
        """Stop dispatching records of a partition, and end its runs after the current record."""
        state.is_draining = True
        state.cancel()
        for run in self._commits.claims.withdraw(lambda run: run in state.in_flight):
            state.in_flight.discard(run)
            self._routes[state.plan.name].release(run)
        self._routes[state.plan.name].scheduler.deactivate(state.topic_partition)

    def remove(self, states: list[PartitionState], now_ms: int, effects: list[Effect]) -> None:
        """Forget these partitions, whose work has ended or was stopped."""
        for state in states:
            self._partitions.pop(state.topic_partition, None)
            self._watch.gone(state)
            self._flow.forget(state.topic_partition)
            self._routes[state.plan.name].scheduler.forget(state.topic_partition)
        self._restart_in_place(self._chains.detach(states), now_ms, effects)

    def seek(self, state: PartitionState, offset: int, now_ms: int, effects: list[Effect]) -> None:
        """Continue from `offset`, together with what that means for the chain of the partition."""
        others = [other for other in self._chains.detach([state]) if other is not state]
        self.restart_partition(state, offset, now_ms, effects)
        self._restart_in_place(others, now_ms, effects)

    def restart_partition(
        self, state: PartitionState, offset: int | None, now_ms: int, effects: list[Effect]
    ) -> PartitionState:
        """Continue from `offset` as after an assignment: runs in flight and buffered records are dropped. With None the
        client stays where it is. Returns the new state, with a new epoch."""
        self.stop_work(state)
        self._expiries.leave([state], effects)
        # What the user asked for outlives the restart; pauses because of the dropped records do not.
        kept = [reason for reason in _OF_THE_USER if self._flow.is_paused_for(state.topic_partition, reason)]
        for reason in PauseReason:
            self._flow.resume(state.topic_partition, reason)
        for reason in kept:
            self._flow.pause(state.topic_partition, reason)
        self._flow.observe(state.topic_partition, records=0, size_bytes=0, now_ms=now_ms)
        self._routes[state.plan.name].scheduler.forget(state.topic_partition)
        fresh = PartitionState(state.topic_partition, self._take_epoch(), state.plan, now_ms)
        self._partitions[state.topic_partition] = fresh
        self._routes[state.plan.name].add(state.topic_partition)
        self._chains.attach(fresh, effects, start=offset)
        fresh.log.topic_id, fresh.log.old_ids = state.log.topic_id, state.log.old_ids
        fresh.log.expected = offset
        self._watch.look_now(now_ms)
        if offset is not None:
            effects.append(SeekPartition(state.topic_partition, offset))
        return fresh

    def _restart_in_place(self, states: Iterable[PartitionState], now_ms: int, effects: list[Effect]) -> None:
        """Restart each partition where it stands. What is finished beyond its position stays finished."""
        for state in states:
            self._chains.detach([state])
        for state in states:
            state.account_progress()
            if state.tracker.position is None:
                # Nothing of it was taken in. Where it stands is unknown, so the client cannot be sent back there.
                self._chains.attach(state, effects)
                continue
            fresh = self.restart_partition(state, state.tracker.position, now_ms, effects)
            fresh.restored = state.restored | frozenset(state.tracker.finished_beyond())
            fresh.tracker.continue_from(state.tracker)

    def _take_epoch(self) -> int:
        self._next_epoch += 1
        return self._next_epoch - 1
