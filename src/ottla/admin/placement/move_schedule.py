"""In which order moves are made so that no disk is ever above its fill limit: a copy arrives before the old one goes.

`Rooms` keeps account of what is on each disk, what is on its way and what leaves. A move is admitted when every target
has room for it beside all that is on its way; what leaves counts as gone when its move has ended, never before. The
executor admits by the same rule, with the sizes of then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.move_plan import LeftOut, Move
from ottla.topics import TopicPartition

GIB: Final = 1 << 30
PARTS: Final = 400
"""Into how many parts one move is divided where many are small."""
_SMALL_AS_ONE: Final = 20
"""So many moves of the greatest size that counts as small are as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePace:
    """How much may be under way at once: moves into and out of a broker, moves to a disk, bytes in all.

    Moves of partitions of at most `small` bytes count by their size: twenty of that size as one, and at most 400 that
    are smaller. Thousands of them would wait for hours else, each five for the next look.
    """

    per_broker: int = 5
    per_disk: int = 2
    bytes: int = 50 * GIB
    small: int = 16 << 20

    def parts(self, move: Move) -> int:
        """Return how much of `per_broker` and `per_disk` a move takes, of PARTS for each."""
        if move.bytes > self.small:
            return PARTS
        return max(1, move.bytes * PARTS // (self.small * _SMALL_AS_ONE)) if self.small else 1


class Rooms:
    """Used bytes of each disk while moves are in progress. Disks are (broker, index)."""

    def __init__(self, model: Model, pace: MovePace) -> None:
        self._model, self._pace = model, pace
        self._index = {
            (broker.id, path): at
            for broker in model.brokers
            for at, disk in enumerate(broker.disks)
            for path in disk.paths
        }
        self.room: dict[tuple[int, int], float] = {
            (broker.id, at): inf if disk.room is None else float(disk.room)
            for broker in model.brokers
            for at, disk in enumerate(broker.disks)
        }
        self.held: Counter[tuple[int, int]] = Counter()
        for each in model.partitions:
            for broker in each.replicas:
                self.held[broker, each.disks.get(broker, 0)] += each.size
        self._brokers: Counter[int] = Counter()
        self._disks: Counter[tuple[int, int]] = Counter()
        self._bytes = 0
        self.busy: set[int] = set()
        """Brokers with so many moves that none more may begin."""
        self.full: set[int] = set()
        """Brokers with so many moves to each of their disks that none more may go there."""
        self._targets: dict[TopicPartition, list[tuple[int, int]]] = {}

    def targets(self, move: Move) -> list[tuple[int, int]]:
        """Return the disks that get a copy. Once chosen, a disk stays chosen."""
        known = self._targets.get(move.place)
        if known is None:
            known = self._targets[move.place] = self._chosen(move)
        return known

    def _chosen(self, move: Move) -> list[tuple[int, int]]:
        chosen = dict(zip(move.new, move.log_dirs, strict=False))
        found = [(broker, self._disk(broker, chosen.get(broker, "any"))) for broker in move.adding]
        return found + [(each.broker, self._index.get((each.broker, each.target), 0)) for each in move.disk_moves]

    def sources(self, move: Move) -> list[tuple[int, int]]:
        """Return the disks that lose a replica when the move has ended."""
        held = self._model.by_place[move.place].disks if move.place in self._model.by_place else {}
        found = [(broker, held.get(broker, 0)) for broker in move.removing]
        return found + [(each.broker, self._index.get((each.broker, each.source), 0)) for each in move.disk_moves]

    def has_room(self, move: Move) -> bool:
        """Return whether every target has room for its copy beside its replicas and the copies in progress."""
        return all(
            self.held[disk] + move.bytes <= self.room.get(disk, 0.0) for disk in self.targets(move) if move.bytes
        )

    def has_pace(self, move: Move) -> bool:
        """Return whether so many moves may be under way. One alone always may."""
        if not self._brokers:
            return True
        pace, targets = self._pace, self.targets(move)
        parts = pace.parts(move)
        if self._bytes + move.bytes * len(targets) > pace.bytes or any(
            self._disks[disk] + parts > pace.per_disk * PARTS for disk in targets
        ):
            return False
        return all(self._brokers[broker] + parts <= pace.per_broker * PARTS for broker in _touched(move))

    @property
    def bytes_left(self) -> float:
        """Return how many more bytes may be under way. One move alone always may."""
        return self._pace.bytes - self._bytes if self._brokers else inf

    def begin(self, move: Move) -> None:
        """Begin the move."""
        self._count(move, 1)
        for disk in self.targets(move):
            self.held[disk] += move.bytes

    def goes_on(self, move: Move) -> None:
        """Count a move that is under way already: its copies are among the replicas that were counted."""
        self._count(move, 1)

    def end(self, move: Move) -> None:
        """End the move and free the place that it left."""
        self._count(move, -1)
        for disk in self.sources(move):
            self.held[disk] -= move.bytes

    def _count(self, move: Move, by: int) -> None:
        parts = by * self._pace.parts(move)
        for broker in _touched(move):
            self._brokers[broker] += parts
            if self._brokers[broker] >= self._pace.per_broker * PARTS:
                self.busy.add(broker)
            else:
                self.busy.discard(broker)
            if not self._brokers[broker]:
                del self._brokers[broker]
        for disk in self.targets(move):
            self._disks[disk] += parts
        for broker in {broker for broker, _ in self.targets(move)}:
            disks = range(len(self._model.by_id[broker].disks)) if broker in self._model.by_id else ()
            if disks and all(self._disks[broker, at] >= self._pace.per_disk * PARTS for at in disks):
                self.full.add(broker)
            else:
                self.full.discard(broker)
        self._bytes += by * move.bytes * len(self.targets(move))

    def _disk(self, broker: int, path: str) -> int:
        """Return the disk of a path; for `any` the one with least room, for Kafka chooses by the number of replicas."""
        if (broker, path) in self._index:
            return self._index[broker, path]
        disks = [disk for disk in self.room if disk[0] == broker]
        return min(disks, key=lambda disk: self.room[disk] - self.held[disk])[1] if disks else 0


def _touched(move: Move) -> set[int]:
    """Return the brokers that read or write data for this move."""
    adding = move.adding
    return {*adding, *(move.removing if adding else ()), *(each.broker for each in move.disk_moves)}


def _receiving(move: Move) -> set[int]:
    """Return the brokers on whose disks this move writes."""
    return {*move.adding, *(each.broker for each in move.disk_moves)}


def in_order(moves: Sequence[Move], levels: Mapping[int, float]) -> list[Move]:
    """Return what frees the fullest broker first, and of that the largest."""

    def key(move: Move) -> tuple[float, int, str, int]:
        sources = [levels.get(broker, inf) for broker in move.removing] or [0.0]
        return -max(sources), -move.bytes, move.topic, move.partition

    return sorted(moves, key=key)


def schedule(
    model: Model, moves: Sequence[Move], *, pace: MovePace, levels: Mapping[int, float]
) -> tuple[tuple[Move, ...], tuple[LeftOut, ...]]:
    """Return moves with their batches, in order, and the moves that never fit. Each batch waits for the previous one.
    Moves that copy nothing come last, in a batch of their own."""
    rooms = Rooms(model, pace)
    waiting = [
        (move, move.bytes * (len(move.adding) + len(move.disk_moves)), _touched(move), _receiving(move))
        for move in in_order(moves, levels)
        if move.adding or move.disk_moves
    ]
    least_bytes = min((wanted for _, wanted, _, _ in waiting), default=0)
    done: list[Move] = []
    batch = 0
    while waiting:
        begun: list[Move] = []
        rest: list[tuple[Move, int, set[int], set[int]]] = []
        left = rooms.bytes_left
        for at, (move, wanted, touched, receiving) in enumerate(waiting):
            # With thousands of moves that wait for a few brokers, or for bytes, these are nearly always the answer.
            if left < least_bytes:
                rest += waiting[at:]
                break
            may_begin = wanted <= left and rooms.busy.isdisjoint(touched) and rooms.full.isdisjoint(receiving)
            if may_begin and rooms.has_pace(move) and rooms.has_room(move):
                rooms.begin(move)
                begun.append(move)
                left = rooms.bytes_left
            else:
                rest.append(waiting[at])
        if not begun:
            break
        batch += 1
        for move in begun:
            rooms.end(move)
            done.append(replace(move, batch=batch))
        waiting = rest
    left_out = tuple(
        LeftOut(topic=move.topic, partition=move.partition, why=_no_room(rooms, move)) for move, *_ in waiting
    )
    free = [move for move in in_order(moves, levels) if not move.adding and not move.disk_moves]
    done += [replace(move, batch=batch + 1) for move in free]
    return tuple(done), left_out


def _no_room(rooms: Rooms, move: Move) -> str:
    for disk in rooms.targets(move):
        if rooms.held[disk] + move.bytes > rooms.room.get(disk, 0.0):
            broker, at = disk
            free = max(0.0, rooms.room.get(disk, 0.0) - rooms.held[disk])
            return (
                f"disk {at + 1} of broker {broker} has {free:,.0f} bytes of room below the fill limit while it moves,"
                f" {move.bytes:,} are wanted"
            )
    return "no room while it moves"
