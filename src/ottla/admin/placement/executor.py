"""Carries a plan out: looks, decides, writes the journal, acts, and looks again, until nothing is left.

A kill at any point leaves moves that go on by themselves and a journal from which the same call goes on. Moves of
others are never touched. Time is given in; nothing here waits but by `sleep`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import ClusterFacts, Part
from ottla.admin.facts.facts_reader import WantedFacts, read_facts
from ottla.admin.placement import journal
from ottla.admin.placement import move_requests as asks
from ottla.admin.placement.deciding import Decision, MoveState, PlanRun, Status, decide
from ottla.admin.placement.journal import Journal, submitted
from ottla.admin.placement.move_plan import DiskMove, Move
from ottla.admin.placement.move_progress import Meter, MoveProgress
from ottla.admin.placement.move_schedule import MovePace
from ottla.admin.placement.run_throttles import RATES, ThrottleSetting, from_journal, to_journal, wanted_settings
from ottla.errors import InputError, OttlaError, RetriableError
from ottla.topics import TopicPartition

T = TypeVar("T")

_STILL_S = 60.0
"""From when on a move that gains no byte says so."""
_PARTS = frozenset({Part.TOPICS, Part.LOG_DIRS, Part.MOVES})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """`throttle` is bytes per second for each broker, None for none. Times are seconds.

    A move whose target is not up, or that has no leader, for longer than `patience_s` is given up.
    """

    throttle: int | None = None
    pace: MovePace = field(default_factory=MovePace)
    max_fill: float = 0.85
    poll_s: float = 2.0
    patience_s: float = 120.0
    dirs_are_disks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended. `not_done` are moves that were not made; `throttles_left` names what could not be restored."""

    statuses: tuple[Status, ...]
    throttles_left: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def not_done(self) -> tuple[Status, ...]:
        return tuple(status for status in self.statuses if status.state is not MoveState.DONE)

    @property
    def is_complete(self) -> bool:
        """Return whether all was done, and nothing of the run is left behind."""
        return not self.not_done and not self.throttles_left


class Executor:
    """One run of a plan, with its journal open. `ask` carries out questions, as `Admin.carry_out` does."""

    def __init__(
        self,
        ask: Callable[[AdminOperation[T]], T],
        moves: Iterable[Move],
        book: Journal,
        options: RunOptions,
        *,
        report: Callable[[MoveProgress], None] = lambda progress: None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask: Callable[[AdminOperation[object]], object] = ask  # type: ignore[assignment]  # generic in each call
        self._moves = tuple(moves)
        self._book = book
        self._options = options
        self._report, self._now, self._sleep = report, now, sleep
        self._still: dict[tuple[str, int], float] = {}
        self._refused: dict[TopicPartition, str] = {}
        self._elected: dict[TopicPartition, int] = {}
        self._begun: set[tuple[str, int]] = set()
        self._unexplained: dict[tuple[str, int], int] = {}
        self._meter = Meter()
        self._gained: dict[tuple[str, int], tuple[int, float]] = {}
        self._given_up_for: dict[TopicPartition, str] = {}

    # The whole

    def run(self) -> RunOutcome:
        """Carry the plan out, or go on with it. Returns when every move is done, given up, or not ours to make."""
        self._check_throttle()
        if self._book.last(journal.BEGIN) is None:
            self._book.write(journal.BEGIN, cluster_id=self._look().cluster_id, moves=len(self._moves))
        self._throttle()
        while True:
            decision = self._step(begins_nothing=False)
            if decision.is_over:
                break
            self._sleep(self._options.poll_s)
        return self._end(decision.statuses)

    def cancel(self) -> RunOutcome:
        """Cancel this run's moves in progress, wait for the cancellation, and remove the throttles. Completed moves are
        kept."""
        ours = {TopicPartition(*key) for key in submitted(self._book.lines)}
        under_way = sorted(place for place in ours if place in self._under_way())
        if under_way:
            refused = self._cancel(under_way)
            for place, error in refused.items():
                self._refused[place] = f"cannot be cancelled: {_without_place(error, place)}"
        waiting = set(under_way) - set(self._refused)
        until = self._now() + self._options.patience_s
        while waiting & self._under_way() and self._now() < until:
            self._sleep(self._options.poll_s)
        decision = self._decision(begins_nothing=True)
        while (decision.reorder or self._is_unsettled(decision)) and self._now() < until:
            self._put_in_order(decision)
            self._sleep(self._options.poll_s)
            decision = self._decision(begins_nothing=True)
        return self._end(decision.statuses)

    # One look and what follows from it

    def _step(self, *, begins_nothing: bool) -> Decision:
        problem = ""
        decision = self._decision(begins_nothing=begins_nothing)
        try:
            self._act(decision)
        except RetriableError as error:
            problem = str(error)  # a broker or the controller is away: look again
        self._report(self._meter.progress(decision.statuses, now=self._now(), problem=problem))
        return decision

    def _decision(self, *, begins_nothing: bool) -> Decision:
        facts = self._look()
        run = PlanRun(
            moves=self._moves,
            ours=submitted(self._book.lines),
            given_up=frozenset(journal.cancelled(self._book.lines)) | self._hopeless(),
            stalled=self._stalled(),
            pace=self._options.pace,
            max_fill=self._options.max_fill,
            dirs_are_disks=self._options.dirs_are_disks,
            begun=frozenset(self._begun),
            unexplained=dict(self._unexplained),
            begins_nothing=begins_nothing,
        )
        decision = decide(run, facts)
        decision = replace(decision, statuses=tuple(self._with_reason(status) for status in decision.statuses))
        self._watch(decision.statuses)
        return decision

    def _with_reason(self, status: Status) -> Status:
        """Log that a move has copied nothing for long; it is not given up for that."""
        key, now = status.move.place, self._now()
        copied, since = self._gained.get(key, (-1, now))
        if status.state is not MoveState.MOVING or copied != status.copied:
            self._gained[key] = status.copied, now
        elif not status.why and now - since > _STILL_S:
            return replace(status, why=f"has copied nothing for {now - since:,.0f} s: is its throttle too low?")
        return status

    def _act(self, decision: Decision) -> None:
        if decision.cancel:
            ended = {move.place for move in decision.cancel}
            self._given_up_for |= {each.move.place: each.why for each in decision.statuses if each.move.place in ended}
            self._refused |= {place: _without_place(error, place) for place, error in self._cancel(ended).items()}
        self._put_in_order(decision)
        if decision.submit:
            targets = [
                (move, DiskMove(broker=broker, source="", target=path))
                for move in decision.submit
                for broker, path in zip(move.new, move.log_dirs, strict=False)
                if path != "any" and broker in move.adding
            ]
            self._book.write(journal.SUBMIT, moves=_submitted(decision.submit))
            self._carry(asks.put_in_dirs(targets))
            self._note(self._carry(asks.begin(decision.submit)))
        if decision.between_disks:
            self._book.write(journal.DIRS, moves=_places({move.place for move, _ in decision.between_disks}))
            self._note(self._carry(asks.put_in_dirs(decision.between_disks)))
        if decision.elect:
            self._book.write(journal.ELECT, moves=_places(decision.elect))
            self._carry(asks.elect(decision.elect))
            for place in decision.elect:
                self._elected[place] = self._elected.get(place, 0) + 1

    def _cancel(self, places: Collection[TopicPartition]) -> asks.Refused:
        """Ask for it. The moves are ours until brokers have answered, so that the next command asks again."""
        self._book.write(journal.CANCEL, moves=_places(places))
        refused: asks.Refused = self._carry(asks.cancel(places))
        self._book.write(journal.CANCELLED, moves=_places(places))
        return refused

    def _put_in_order(self, decision: Decision) -> None:
        if decision.reorder:
            self._book.write(journal.REORDER, moves=_submitted(decision.reorder))
            self._note(self._carry(asks.begin(decision.reorder)))

    def _is_unsettled(self, decision: Decision) -> bool:
        return any(
            status.state is MoveState.WAITING and status.move.place in self._unexplained for status in decision.statuses
        )

    def _note(self, refused: asks.Refused) -> None:
        for place, error in refused.items():
            if not isinstance(error, RetriableError):
                self._refused[place] = _without_place(error, place)

    def _hopeless(self) -> frozenset[tuple[str, int]]:
        """Return what a broker refused for good, and elections that were held and held again."""
        tried = {place for place, count in self._elected.items() if count > 20}
        return frozenset({*self._refused, *tried})

    def _watch(self, statuses: Iterable[Status]) -> None:
        """Record since when each move stands still for a reason that may never end."""
        now = self._now()
        is_waiting = not any(status.state in (MoveState.MOVING, MoveState.BETWEEN_DISKS) for status in statuses)
        for status in statuses:
            key = status.move.place
            if status.state is MoveState.MOVING:
                self._begun.add(key)
            if status.why.startswith("its replicas are"):
                self._unexplained[key] = self._unexplained.get(key, 0) + 1
            else:
                self._unexplained.pop(key, None)
            hangs = status.state in (MoveState.MOVING, MoveState.WAITING, MoveState.FOREIGN)
            has_no_room = is_waiting and "room" in status.why  # while something moves, it may make room
            is_stuck = status.state is MoveState.FOREIGN or "broker" in status.why or "leader" in status.why
            if hangs and (is_stuck or has_no_room):
                since = self._still.setdefault(key, now)
                if status.state is not MoveState.MOVING and now - since > self._options.patience_s:
                    self._refused.setdefault(status.move.place, status.why or status.state.value)
            else:
                self._still.pop(key, None)

    def _stalled(self) -> frozenset[tuple[str, int]]:
        now = self._now()
        return frozenset(key for key, since in self._still.items() if now - since > self._options.patience_s)

    # Throttles

    def _check_throttle(self) -> None:
        if self._options.throttle is not None and self._options.throttle <= 0:
            raise InputError(f"throttle: found {self._options.throttle}, wanted more than 0 bytes per second")

    def _throttle(self) -> None:
        """Set throttles once: a continued run reads from the journal that they are set, and their earlier values."""
        line = self._book.last(journal.THROTTLE, journal.RESTORED)
        rate = self._options.throttle
        is_set = line is not None and line["step"] == journal.THROTTLE
        if rate is None:
            self._restore()  # the same command without a throttle takes it away
            return
        if line is not None and is_set:
            known = from_journal(line)
            settings = [replace(each, new=str(rate)) if each.name in RATES else each for each in known]
        else:
            left = [status.move for status in self._decision(begins_nothing=True).statuses if not status.state.is_final]
            settings = self._carry(asks.read_settings(wanted_settings(left, rate)))
            known = []
        if not settings:
            return
        if settings != known:
            self._book.write(journal.THROTTLE, settings=to_journal(settings))
        failed = self._carry(asks.set_all(settings, back=False))
        if failed and not is_set:
            raise next(iter(failed.values()))

    def _restore(self) -> tuple[str, ...]:
        line = self._book.last(journal.THROTTLE, journal.RESTORED)
        if line is None or line["step"] == journal.RESTORED:
            return ()
        settings = from_journal(line)
        self._book.write(journal.RESTORE)
        failed = self._carry(asks.set_all(settings, back=True))
        until = self._now() + self._options.patience_s
        while failed and self._now() < until:
            self._sleep(self._options.poll_s)
            failed = self._carry(asks.set_all(_of(settings, failed), back=True))
        if not failed:
            self._book.write(journal.RESTORED)
        return tuple(f"{what}: {error}" for what, error in failed.items())

    def _end(self, statuses: tuple[Status, ...]) -> RunOutcome:
        left = self._restore()
        if not left:
            self._book.write(journal.DONE)
        why = {**self._given_up_for, **self._refused}
        explained = tuple(replace(status, why=why.get(status.move.place, status.why)) for status in statuses)
        refused = tuple(f"{place}: {why}" for place, why in sorted(self._refused.items()))
        return RunOutcome(statuses=explained, throttles_left=left, refused=refused)

    # Asking

    def _look(self) -> ClusterFacts:
        until = self._now() + self._options.patience_s
        while True:
            try:
                facts = self._carry(read_facts(WantedFacts(parts=_PARTS, at_ms=0)))
                missing = next((each for each in facts.not_read if each.part is Part.MOVES), None)
                if missing is None:
                    return facts
                problem: OttlaError = RetriableError(f"the moves under way could not be read: {missing.reason}")
            except RetriableError as error:
                problem = error
            if self._now() >= until:
                raise problem
            self._sleep(self._options.poll_s)

    def _under_way(self) -> set[TopicPartition]:
        return {TopicPartition(each.topic, each.partition) for each in self._look().moves}

    def _carry(self, asking: AdminOperation[T]) -> T:
        return self._ask(asking)  # type: ignore[return-value]  # see __init__


def _without_place(error: OttlaError, place: TopicPartition) -> str:
    """Return why a broker refused a move. Outcomes name its partition beside it."""
    return str(error).replace(f" of {place}: ", ": ", 1)


def _of(settings: Iterable[ThrottleSetting], failed: Collection[str]) -> list[ThrottleSetting]:
    return [each for each in settings if f"{each.kind} {each.resource}" in failed]


def _places(places: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": place.topic, "partition": place.partition} for place in sorted(places)]


def _submitted(moves: Iterable[Move]) -> list[dict[str, object]]:
    return [{"topic": move.topic, "partition": move.partition, "replicas": list(move.new)} for move in moves]
