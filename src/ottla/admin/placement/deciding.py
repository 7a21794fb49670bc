"""Decides the next step of a run from the plan, the journal and the current facts. Pure, and called with each new
facts. It keeps no state beside the journal, so a run that was killed decides as one that was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ottla.admin.facts.cluster_facts import ClusterFacts, PartitionInfo
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import DiskMove, Move
from ottla.admin.placement.move_schedule import MovePace, Rooms, in_order
from ottla.topics import TopicPartition

_FULL: Final = 1 << 20
"""A disk with fewer bytes left is full: a segment needs more."""

_LOOKS: Final = 4
"""How often a partition must be seen with replicas that no move of ours explains, until it is believed."""
_LOOKS_AT_BOTH: Final = 20
"""The same where the replicas are old and new ones of a move of ours: a broker that lags behind the controller shows
them after the move has ended."""


class MoveState(Enum):
    """How far a move is."""

    WAITING = "waits"
    """For room, for its turn, or for a broker."""
    MOVING = "moves"
    BETWEEN_DISKS = "moves between disks"
    ELECTING = "waits for its leader"
    DONE = "done"
    FOREIGN = "is moved by another tool"
    CHANGED = "was changed by another tool"
    GONE = "was deleted"
    CANCELLED = "was cancelled by another tool"
    GIVEN_UP = "was given up"

    @property
    def is_final(self) -> bool:
        """Return whether this run does nothing more about it."""
        return self in (MoveState.DONE, MoveState.CHANGED, MoveState.GONE, MoveState.CANCELLED, MoveState.GIVEN_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The current state of one move. `copied` is the number of bytes on the targets, `copied_to` the number by target;
    `why` says what the move waits for."""

    move: Move
    state: MoveState
    copied: int = 0
    why: str = ""
    is_left: bool = False
    """Whether the run continues without this move, though it is not final."""
    lost: tuple[int, ...] = ()
    """Targets that are not up."""
    copied_to: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next actions. All are empty while the run only waits; `is_over` once all moves are final."""

    statuses: tuple[Status, ...]
    submit: tuple[Move, ...] = ()
    between_disks: tuple[tuple[Move, DiskMove], ...] = ()
    elect: tuple[TopicPartition, ...] = ()
    cancel: tuple[Move, ...] = ()
    reorder: tuple[Move, ...] = ()
    """Cancelled moves whose replicas returned in another order, as Kafka restores them."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to be done, or waited for."""
        return all(each.state.is_final or each.is_left for each in self.statuses) and not self.reorder


@dataclass(frozen=True, kw_only=True)
class PlanRun:
    """State that stays the same while a plan runs. `stalled`: moves that timed out and are to be given up."""

    moves: tuple[Move, ...]
    ours: Mapping[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    given_up: frozenset[tuple[str, int]] = frozenset()
    stalled: frozenset[tuple[str, int]] = frozenset()
    begun: frozenset[tuple[str, int]] = frozenset()
    """Moves seen in progress. One that is neither in progress nor planned any more was cancelled by another tool."""
    unexplained: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How often in turn a partition was seen with replicas that no move of ours explains."""
    pace: MovePace = field(default_factory=MovePace)
    max_fill: float = 0.85
    dirs_are_disks: bool = False
    begins_nothing: bool = False
    """Whether only what is under way is seen to its end."""


def decide(run: PlanRun, facts: ClusterFacts) -> Decision:
    """Return what to do next."""
    facts = reachable_only(facts)
    model = model_of(facts, max_fill=run.max_fill, dirs_are_disks=run.dirs_are_disks)
    looking = _Looking(run, facts, model)
    statuses = [looking.status(move) for move in run.moves]
    rooms = Rooms(model, run.pace)
    for status in statuses:
        if status.state in (MoveState.MOVING, MoveState.BETWEEN_DISKS):
            rooms.goes_on(status.move)
    levels = {broker: float(size) for broker, size in looking.bytes_of_broker().items()}
    order = {move.place: at for at, move in enumerate(in_order(run.moves, levels))}
    submit: list[Move] = []
    for status in sorted(statuses, key=lambda each: order[each.move.place]):
        if status.state is MoveState.WAITING and not status.why and not run.begins_nothing:
            if not rooms.has_room(status.move):
                looking.waits[status.move.place] = "waits for room on the disk of its target"
            elif rooms.has_pace(status.move):
                rooms.begin(status.move)
                submit.append(status.move)
            else:
                looking.waits[status.move.place] = "waits for its turn"
    return Decision(
        statuses=tuple(
            replace(each, why=each.why or looking.waits.get(each.move.place, ""), lost=looking.away(each.move))
            for each in statuses
        ),
        submit=tuple(move for move in submit if move.old != move.new),
        between_disks=looking.between_disks({move.place for move in submit}),
        elect=() if run.begins_nothing else looking.elections(statuses),
        cancel=tuple(status.move for status in statuses if looking.has_to_end(status)),
        reorder=tuple(move for status in statuses if (move := looking.back_in_order(status)) is not None),
    )


class _Looking:
    """The current cluster, compared with the plan."""

    def __init__(self, run: PlanRun, facts: ClusterFacts, model: Model) -> None:
        self.run, self.facts, self.model = run, facts, model
        self.moving = {TopicPartition(each.topic, each.partition): each for each in facts.moves}
        self.live = {broker.id for broker in model.brokers if broker.is_registered and not broker.is_fenced}
        self.waits: dict[TopicPartition, str] = {}
        self.held: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
        self.copies: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
        self.dirs = {broker.id: broker.log_dirs or () for broker in facts.brokers}
        for broker in facts.brokers:
            for log_dir in broker.log_dirs or ():
                for replica in log_dir.replicas:
                    place = TopicPartition(replica.topic, replica.partition)
                    known = self.copies if replica.is_future else self.held
                    known[place, broker.id] = log_dir.path, replica.bytes

    def status(self, move: Move) -> Status:
        now = self.facts.by_partition.get(move.place)
        if now is None:
            return Status(move=move, state=MoveState.GONE)
        copied_to = {broker: min(move.bytes, self._size(move, broker)) for broker in move.adding}
        seen = Status(move=move, state=MoveState.WAITING, copied=sum(copied_to.values()), copied_to=copied_to)
        key = move.place
        under_way = self.moving.get(move.place)
        if under_way is not None:
            target = set(under_way.replicas) - set(under_way.removing)
            if set(self.run.ours.get(key, ())) == target == set(move.new):
                return replace(seen, state=MoveState.MOVING, why=self._stands_still(move))
            return replace(seen, state=MoveState.FOREIGN, is_left=key in self.run.given_up)
        if now.replicas == move.new:
            return self._arrived(move, now)
        if set(now.replicas) != set(move.old):
            # Metadata may be older than the list of moves: between them a move of ours may have ended.
            is_of_ours = key in {*self.run.ours, *self.run.given_up} and set(now.replicas) <= {*move.old, *move.new}
            is_believed = self._is_believed(key, _LOOKS_AT_BOTH if is_of_ours else _LOOKS)
            state = MoveState.CHANGED if is_believed else MoveState.WAITING
            return replace(seen, state=state, why=f"its replicas are {_ids(now.replicas)}")
        if key in self.run.given_up:
            return Status(move=move, state=MoveState.GIVEN_UP, why="it made no progress for too long")
        if key in self.run.begun:
            why = f"its replicas are {_ids(now.replicas)} again"
            state = MoveState.CANCELLED if self._is_believed(key, _LOOKS) else MoveState.WAITING
            return Status(move=move, state=state, why=why)
        return Status(move=move, state=MoveState.WAITING, why=self._away(move))

    def _is_believed(self, key: tuple[str, int], looks: int) -> bool:
        return self.run.unexplained.get(key, 0) >= looks

    def _arrived(self, move: Move, now: PartitionInfo) -> Status:
        whole = dict.fromkeys(move.adding, move.bytes)
        done = Status(move=move, state=MoveState.DONE, copied=move.copied, copied_to=whole)
        if any(self._goes_between(move, each) for each in self.wanted_dirs(move)):
            return replace(done, state=MoveState.BETWEEN_DISKS)
        is_given_up = move.place in self.run.given_up
        for each in self.wanted_dirs(move):
            if self._path(move, each.broker) != each.target and each.broker in self.live:
                why = self._failed_dir(each)
                if is_given_up:
                    return replace(done, state=MoveState.GIVEN_UP, why=why or "is not in the log directory of the plan")
                return replace(done, state=MoveState.WAITING, why=why)
        if is_given_up:
            return done
        if self._wants_election(move, now):
            return replace(done, state=MoveState.ELECTING)
        return done

    def wanted_dirs(self, move: Move) -> list[DiskMove]:
        """Return which directories replicas shall be in, of those that the plan says it of."""
        found = []
        for broker, path in zip(move.new, move.log_dirs, strict=False):
            if path != "any":
                found.append(DiskMove(broker=broker, source=self._path(move, broker) or "", target=path))
        return found

    def between_disks(self, admitted: set[TopicPartition]) -> tuple[tuple[Move, DiskMove], ...]:
        """Return replicas that are on their broker and in another directory than wanted, of moves that are admitted."""
        return tuple(
            (move, each)
            for move in self.run.moves
            if move.place in admitted and self._is_placed(move)
            for each in self.wanted_dirs(move)
            if each.source not in ("", each.target) and each.broker in self.live
        )

    def elections(self, statuses: Sequence[Status]) -> tuple[TopicPartition, ...]:
        return tuple(status.move.place for status in statuses if status.state is MoveState.ELECTING)

    def has_to_end(self, status: Status) -> bool:
        return status.state is MoveState.MOVING and status.move.place in self.run.stalled

    def back_in_order(self, status: Status) -> Move | None:
        """Put the replicas back in their order: a cancel leaves them in the order of the target, so that another one
        leads."""
        now = self.facts.by_partition.get(status.move.place)
        is_undone = status.state in (MoveState.GIVEN_UP, MoveState.CANCELLED)
        if not is_undone or now is None or now.replicas == status.move.old:
            return None
        if set(now.replicas) != set(status.move.old):
            return None
        return replace(status.move, old=now.replicas, new=status.move.old, log_dirs=(), disk_moves=())

    def bytes_of_broker(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for (_, broker), (_, size) in self.held.items():
            found[broker] = found.get(broker, 0) + size
        return found

    def _is_placed(self, move: Move) -> bool:
        now = self.facts.by_partition.get(move.place)
        return now is not None and move.place not in self.moving and now.replicas == move.new

    def _failed_dir(self, each: DiskMove) -> str:
        failed = (log_dir for log_dir in self.dirs.get(each.broker, ()) if log_dir.error is not None)
        if any(log_dir.path == each.target for log_dir in failed):
            return f"makes no progress: log directory {each.target} of broker {each.broker} failed"
        return ""

    def _goes_between(self, move: Move, each: DiskMove) -> bool:
        return (move.place, each.broker) in self.copies

    def _wants_election(self, move: Move, now: PartitionInfo) -> bool:
        wanted = move.new[0]
        return now.leader != wanted and wanted in now.in_sync and wanted in self.live

    def _path(self, move: Move, broker: int) -> str | None:
        found = self.held.get((move.place, broker))
        return None if found is None else found[0]

    def _size(self, move: Move, broker: int) -> int:
        found = self.held.get((move.place, broker))
        return 0 if found is None else found[1]

    def away(self, move: Move) -> tuple[int, ...]:
        return tuple(broker for broker in move.adding if broker not in self.live)

    def _away(self, move: Move) -> str:
        away = self.away(move)
        return f"waits for broker {away[0]}, which is down" if away else ""

    def _stands_still(self, move: Move) -> str:
        now = self.facts.by_partition.get(move.place)
        if now is not None and now.leader is None:
            return "has no leader to be copied from"
        return self._away(move) or self._has_no_disk(move)

    def _has_no_disk(self, move: Move) -> str:
        """Return why a target that is up cannot take the replica (its log directory failed, or is full), or nothing."""
        for broker in move.adding:
            dirs = {log_dir.path: log_dir for log_dir in self.dirs.get(broker, ())}
            path = self._path(move, broker)
            failed = next((each.path for each in dirs.values() if each.error is not None), None)
            if path is None and failed is not None:
                return f"makes no progress: log directory {failed} of broker {broker} failed"
            left = min(move.bytes - self._size(move, broker), _FULL)
            chosen = dirs.values() if path is None else [dirs[path]]
            usable = [each.usable_bytes for each in chosen if each.usable_bytes is not None]
            if usable and max(usable) < left:
                return f"makes no progress: the disk{f' of {path}' if path else ''} of broker {broker} is full"
        return ""


def reachable_only(facts: ClusterFacts) -> ClusterFacts:
    """Return the facts with each broker that did not answer marked as fenced: it gets no replicas and keeps those that
    it has."""
    brokers = tuple(
        broker if broker.log_dirs is not None else replace(broker, is_fenced=True, log_dirs=())
        for broker in facts.brokers
    )
    return replace(facts, brokers=brokers)


def _ids(replicas: tuple[int, ...]) -> str:
    return ", ".join(map(str, replicas))
