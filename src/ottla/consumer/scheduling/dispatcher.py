"""Hands out runs to free workers, in the order of turns; a batch may wait for more records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.consumer.commit.claims import Claims
from ottla.consumer.model.effects import Dispatch, Effect
from ottla.consumer.model.run import AnyRecord, Run
from ottla.consumer.model.timers import Timers
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.scheduling.route import RouteState
from ottla.records import TopicPartition

HoldBack = Callable[[PartitionState, Run, int, list[Effect]], "Run | None"]
"""Removes records from a run that must not be handled now. Returns the rest, or None."""


class Dispatcher:
    """Takes runs from the lanes for one session. `claims`: at most once, a run waits there for its commit. `hold_back`
    is called with each run of a partition with retry topics."""

    __slots__ = ("_claims", "_flow", "_hold_back", "_partitions", "_routes", "_timers")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionState],
        routes: Mapping[str, RouteState],
        *,
        flow: FlowControl,
        timers: Timers,
        hold_back: HoldBack,
        claims: Claims | None,
    ) -> None:
        self._partitions = partitions
        self._routes = routes
        self._flow = flow
        self._timers = timers
        self._hold_back = hold_back
        self._claims = claims

    def dispatch(self, now_ms: int, effects: list[Effect]) -> None:
        """Give each free worker a run, while there are records to hand out."""
        for route in self._routes.values():
            if len(route.scheduler):
                self._dispatch_route(route, now_ms, effects)
                if len(route.scheduler):
                    route.end_long_turns(now_ms)

    def activate(self, state: PartitionState) -> None:
        """Give the partition turns, if it has records that may be handed out."""
        if state.is_eligible and not self._flow.is_paused_for(state.topic_partition, PauseReason.USER):
            self._routes[state.plan.name].scheduler.activate(state.topic_partition)

    def look_again(self, state: PartitionState, at_ms: int | None) -> None:
        """Look at the partition again at this time: its batch has waited long enough then."""

        def fire(now_ms: int, effects: list[Effect]) -> None:
            if self.is_current(state):
                self.activate(state)

        if at_ms is not None:
            self._timers.at(at_ms, fire)

    def retry_at(self, state: PartitionState, group: Sequence[AnyRecord], due_ms: int) -> None:
        """Deliver a held group of failed records again at this time."""
        first = group[0].offset
        state.retries[first] = due_ms, len(group)

        def fire(now_ms: int, effects: list[Effect]) -> None:
            state.retries.pop(first, None)
            if self.is_current(state):
                state.lanes.retry(group)
                self.activate(state)

        self._timers.at(due_ms, fire)

    def is_current(self, state: PartitionState) -> bool:
        """Return whether this state is the current one of its partition, which is not being revoked."""
        return self._partitions.get(state.topic_partition) is state and not state.is_draining

    def _dispatch_route(self, route: RouteState, now_ms: int, effects: list[Effect]) -> None:
        while route.has_free_worker:
            if route.limit is not None and not route.limit.allowed(now_ms):
                self._look_again_at(route, route.limit.resumes_ms)
                return
            turn = route.next_turn()
            if turn is None:
                return
            topic_partition, allowance = turn
            state = self._partitions[topic_partition]
            if not state.is_eligible:
                continue
            if state.linger is not None and self._lingers(state, now_ms):
                continue
            run = route.take_run(state, allowance, now_ms)
            if state.linger is not None:
                self.look_again(state, state.linger.taken(waiting=state.lanes.waiting, now_ms=now_ms))
            if run is not None and state.level is not None:
                run = self._hold_back(state, run, now_ms, effects)
            if run is not None:
                state.in_flight.add(run)
                route.began(run)
                if self._claims is not None:
                    self._claims.claim(state, run)
                else:
                    effects.append(Dispatch(run))
            self.activate(state)

    def _look_again_at(self, route: RouteState, at_ms: int) -> None:
        """Hand out records of this handler again at this time: there are tokens then."""
        if route.wakes_ms != at_ms:
            route.wakes_ms = at_ms
            self._timers.at(at_ms, _only_wake)

    def _lingers(self, state: PartitionState, now_ms: int) -> bool:
        is_pressed = state.lanes.has_retries or self._flow.is_paused(state.topic_partition)
        assert state.linger is not None
        return not is_pressed and state.linger.waits(waiting=state.lanes.waiting, now_ms=now_ms)


def _only_wake(now_ms: int, effects: list[Effect]) -> None:
    """Do nothing: each step hands out what it can."""
