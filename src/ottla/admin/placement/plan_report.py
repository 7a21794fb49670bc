"""Turns a computed placement into a plan: each move with its reason, the brokers before and after, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ottla.admin.placement.disk_choice import DiskPlan
from ottla.admin.placement.move_plan import BrokerLoad, DiskMove, LeftOut, Move, MovePlan
from ottla.admin.placement.move_schedule import schedule
from ottla.admin.placement.placement_state import Placement
from ottla.topics import TopicPartition

ANY_DIR = "any"
_BY_BYTES = ("rebalance", "add-brokers", "remove-brokers")
"""Plans that bring the fullest broker down. Others leave it as it is."""


class Reporting:
    """A computed placement beside the current one. `removed`: the brokers to empty; `why`: reasons known so far."""

    def __init__(
        self,
        state: Placement,
        disks: DiskPlan,
        *,
        removed: frozenset[int],
        why: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        self.state, self.disks, self.removed = state, disks, removed
        self._why = why or {}
        self.model = state.model
        self.index = {broker: at for at, broker in enumerate(state.ids)}
        self.before = self.loads([list(each.replicas) for each in self.model.partitions], DiskPlan())
        self.level = {load.id: load.level or 0.0 for load in self.before}
        led = [load.leader_weight for load in self.before if load.level is not None]
        mean = sum(led) / len(led) if led else 0.0
        self.leads = {load.id: load.leader_weight / mean if mean else 0.0 for load in self.before}

    def plan(self, kind: str, *, is_cut_short: bool) -> MovePlan:
        found = [move for p in range(len(self.model.partitions)) if (move := self.move(p)) is not None]
        urgent = {broker: float("inf") for broker in self.removed}
        moves, left = schedule(self.model, found, pace=self.state.goals.pace, levels={**self.level, **urgent})
        new = {move.place: move.new for move in moves}
        after = [list(new.get(each.place, each.replicas)) for each in self.model.partitions]
        kept = {(move.place, broker) for move in moves for broker in move.new}
        disks = DiskPlan(
            {key: at for key, at in self.disks.arriving.items() if self._key(key) in kept},
            {key: at for key, at in self.disks.moves.items() if self._key(key) in kept},
        )
        loads = self.loads(after, disks)
        return MovePlan(
            kind=kind,
            cluster_id=self.model.cluster_id,
            at_ms=self.model.at_ms,
            tolerance=self.state.goals.tolerance,
            max_fill=self.state.goals.max_fill,
            moves=moves,
            floor=self.state.floor,
            before=self.before,
            after=loads,
            left_out=left,
            notes=(*self.notes(left), *self._short_of_goal(kind, loads, left, is_cut_short=is_cut_short)),
            is_cut_short=is_cut_short,
            weighed_by="write rate" if self.model.has_rates else "size",
        )

    def move(self, p: int) -> Move | None:
        """Return what changes of a partition; None for nothing."""
        each, ids = self.model.partitions[p], self.state.ids
        new = tuple(ids[b] for b in self.state.replicas[p])
        disk_moves = tuple(
            DiskMove(
                broker=ids[b],
                source=self.model.brokers[b].disks[source].path,
                target=self.model.brokers[b].disks[target].path,
            )
            for b in self.state.replicas[p]
            for source, target in [self.disks.moves.get((p, b), (0, 0))]
            if source != target
        )
        if new == each.replicas and not disk_moves:
            return None
        paths = [self._path(p, b, disk_moves) for b in self.state.replicas[p]]
        move = Move(
            topic=each.topic,
            partition=each.partition,
            bytes=each.size,
            old=each.replicas,
            new=new,
            log_dirs=tuple(paths),
            disk_moves=disk_moves,
            rate=each.rate,
        )
        return replace(move, why=self._why.get(move.place) or self.why(move))

    def why(self, move: Move) -> str:
        """Return one sentence, about the first thing that made it necessary."""
        lost = [broker for broker in move.removing if broker in self.removed]
        if lost:
            known = self.model.by_id.get(lost[0])
            is_gone = known is None or not known.is_registered
            return f"broker {lost[0]} is not in the cluster" if is_gone else f"broker {lost[0]} is to be emptied"
        if len(move.new) != len(move.old):
            return f"it has {len(move.old)} replicas, {len(move.new)} are wanted"
        if len({self.model.rack_of(b) for b in move.new}) > len({self.model.rack_of(b) for b in move.old}):
            return f"its replicas were in {_racks(len({self.model.rack_of(b) for b in move.old}))}"
        if move.removing:
            source = max(move.removing, key=lambda broker: self.level.get(broker, 0.0))
            if self.level.get(source, 0.0) > 1 + self.state.goals.tolerance / 2:
                return f"broker {source} {_beside(self.level[source])}"
            return f"it makes room on broker {source} for other replicas"
        if move.disk_moves:
            return f"{move.disk_moves[0].source} of broker {move.disk_moves[0].broker} is fuller than its other disks"
        return f"broker {move.old[0]} leads {_share(self.leads.get(move.old[0], 0.0))} the mean"

    def loads(self, replicas: list[list[int]], disks: DiskPlan) -> tuple[BrokerLoad, ...]:
        """Return each broker's load with these replicas (broker ids)."""
        size: Counter[int] = Counter()
        count: Counter[int] = Counter()
        leaders: Counter[int] = Counter()
        rate: dict[int, float] = {}
        lead: dict[int, float] = {}
        by_disk: Counter[tuple[int, int]] = Counter()
        for p, (each, held) in enumerate(zip(self.model.partitions, replicas, strict=True)):
            for broker in held:
                size[broker] += each.size
                count[broker] += 1
                rate[broker] = rate.get(broker, 0.0) + each.rate
                at = each.disks.get(broker, 0)
                key = (p, self.index[broker])
                at = disks.arriving.get(key, disks.moves.get(key, (0, at))[1])
                by_disk[broker, at] += each.size
            if held:
                leaders[held[0]] += 1
                weight = each.rate if self.model.has_rates else float(each.size)
                lead[held[0]] = lead.get(held[0], 0.0) + weight
        found = []
        for known, weight in zip(self.model.brokers, self.state.weight, strict=True):
            share = weight * self.state.mean
            paths = {disk.path: by_disk[known.id, at] for at, disk in enumerate(known.disks)}
            found.append(
                BrokerLoad(
                    id=known.id,
                    rack=known.rack,
                    bytes=size[known.id],
                    level=size[known.id] / share if share > 0 else None,
                    replicas=count[known.id],
                    leaders=leaders[known.id],
                    rate_in=rate.get(known.id, 0.0),
                    leader_weight=lead.get(known.id, 0.0),
                    disks=paths,
                )
            )
        return tuple(found)

    def notes(self, left: tuple[LeftOut, ...]) -> tuple[str, ...]:
        """Return the notes that accompany a plan."""
        notes = []
        if self.state.floor.level > 1.005:
            notes.append(
                f"{self.state.floor.level:.2f} × the mean is the best that can be reached: {self.state.floor.why}"
            )
        if not self.model.has_rates:
            notes.append(
                "write rates were not measured, or nothing was written: leaders are spread by the size of their"
                " partitions"
            )
        fenced = [str(broker.id) for broker in self.model.brokers if broker.is_fenced]
        if fenced:
            notes.append(f"brokers that are fenced keep what they have: {', '.join(fenced)}")
        fixed = Counter(each.fixed for each in self.model.partitions if each.fixed)
        notes += [f"{count:,} partitions stay as they are: {why}" for why, count in sorted(fixed.items())]
        if left:
            notes.append(f"{len(left):,} moves are left out: there is no room for them during the move")
        return tuple(notes)

    def _short_of_goal(
        self, kind: str, after: tuple[BrokerLoad, ...], left: tuple[LeftOut, ...], *, is_cut_short: bool
    ) -> list[str]:
        """Return a note that the search ended early, or found no way to the level that was asked for."""
        if is_cut_short:
            return ["the search reached its time limit: this is the best plan found"]
        worst = max((load for load in after if load.level is not None), key=lambda load: load.level or 0, default=None)
        wanted = self.state.floor.level * (1 + self.state.goals.tolerance)
        if kind not in _BY_BYTES or left or worst is None or (worst.level or 0) <= wanted * (1 + 1e-6):
            return []
        return [
            f"broker {worst.id} keeps {worst.level:.2f} × its fair share, wanted at most {wanted:.2f} ×: found no move"
            " or exchange that lowers it and keeps racks, the fill limit and partitions that must not move"
        ]

    def _key(self, key: tuple[int, int]) -> tuple[object, int]:
        return self.model.partitions[key[0]].place, self.state.ids[key[1]]

    def _path(self, p: int, b: int, disk_moves: tuple[DiskMove, ...]) -> str:
        if (p, b) in self.disks.arriving:
            return self.model.brokers[b].disks[self.disks.arriving[p, b]].path
        return next((each.target for each in disk_moves if each.broker == self.state.ids[b]), ANY_DIR)


def _beside(level: float) -> str:
    return f"is {level - 1:.0%} above its fair share" if level >= 1 else f"is {1 - level:.0%} below its fair share"


def _share(level: float) -> str:
    return f"{level:.1f} ×"


def _racks(count: int) -> str:
    return "one rack" if count == 1 else f"{count} racks"
