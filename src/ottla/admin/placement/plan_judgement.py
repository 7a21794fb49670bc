"""Effects of a plan, made by any tool, on a cluster: bytes, the fullest broker, leaders, racks, and objections."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.admin.placement.cluster_model import Model, ModelBroker
from ottla.admin.placement.disk_choice import DiskPlan
from ottla.admin.placement.move_plan import Move, MovePlan, fullest, leader_skew
from ottla.admin.placement.placement_state import DEFAULT_GOALS, Goals, Placement
from ottla.admin.placement.plan_file import ANY, PlanFile, moves_of
from ottla.admin.placement.plan_report import Reporting
from ottla.topics import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`problems` are what would lose or stop something, `warnings` what is worse afterwards than it could be."""

    plan: MovePlan
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def judge(file: PlanFile, model: Model, *, goals: Goals = DEFAULT_GOALS) -> Judgement:
    """Judge a plan by the current cluster. Raises InputError for a topic or broker that the cluster does not have."""
    moves = moves_of(file, model)
    plan = plan_of(moves, model, goals=goals)
    return Judgement(plan=plan, problems=tuple(_problems(file, model, plan, moves)), warnings=tuple(_warnings(plan)))


def plan_of(moves: tuple[Move, ...], model: Model, *, goals: Goals) -> MovePlan:
    """Return moves chosen elsewhere as a plan: with batches, and the brokers before and after."""
    unknown = {broker for move in moves for broker in move.new} - set(model.by_id)
    if unknown:
        more = (ModelBroker(id=broker, weight=0.0, is_registered=False) for broker in sorted(unknown))
        model = replace(model, brokers=(*model.brokers, *more))
    state = Placement(model, goals)
    index = {broker: at for at, broker in enumerate(state.ids)}
    at = {each.place: p for p, each in enumerate(model.partitions)}
    disks = DiskPlan()
    for move in moves:
        p = at[move.place]
        state.replicas[p] = [index[broker] for broker in move.new]
        for each in move.disk_moves:
            paths = model.by_id[each.broker].disks
            source, target = _at(paths, each.source), _at(paths, each.target)
            disks.moves[p, index[each.broker]] = source, target
        for broker, path in zip(move.new, move.log_dirs, strict=False):
            if broker in move.adding and path != ANY and len(model.by_id[broker].disks) > 1:
                disks.arriving[p, index[broker]] = _at(model.by_id[broker].disks, path)
    return Reporting(state, disks, removed=frozenset(), why={move.place: move.why for move in moves}).plan(
        "check", is_cut_short=False
    )


def _at(disks: tuple[object, ...], path: str) -> int:
    return next(at for at, disk in enumerate(disks) if path in getattr(disk, "paths", ()))


def _problems(file: PlanFile, model: Model, plan: MovePlan, moves: tuple[Move, ...]) -> list[str]:
    found = []
    if file.cluster_id and file.cluster_id != model.cluster_id:
        found.append(f"it is for the cluster {file.cluster_id}, this one is {model.cluster_id}")
    for move in moves:
        for broker in move.adding:
            if not _is_there(model, broker):
                found.append(f"{move.place}: broker {broker} is not in the cluster")
            elif not model.by_id[broker].can_receive:
                found.append(f"{move.place}: broker {broker} is fenced or has no usable log directory")
        if len(move.new) < len(move.old):
            found.append(f"{move.place}: {len(move.new)} replicas where there are {len(move.old)}")
        racks = [len({model.rack_of(broker) for broker in replicas}) for replicas in (move.old, move.new)]
        if racks[1] < min(racks[0], len(move.new)):
            found.append(f"{move.place}: replicas in {racks[1]} racks where there are {racks[0]}")
        fixed = model.by_place[move.place].fixed
        if fixed:
            found.append(f"{move.place}: {fixed}")
        if not set(move.new) & set(model.by_place[move.place].in_sync) and model.by_place[move.place].leader is None:
            found.append(f"{move.place}: has no leader, so nothing can be copied")
    absent = {move.place for move in moves for broker in move.new if not _is_there(model, broker)}
    found += [
        f"{each.topic}-{each.partition}: {each.why}"
        for each in plan.left_out
        if TopicPartition(each.topic, each.partition) not in absent
    ]
    return found


def _is_there(model: Model, broker: int) -> bool:
    return broker in model.by_id and model.by_id[broker].is_registered


def _warnings(plan: MovePlan) -> list[str]:
    found = []
    allowed = max(plan.floor.level * (1 + plan.tolerance), fullest(plan.before))
    worst = max((load for load in plan.after if load.level is not None), key=lambda load: load.level or 0, default=None)
    if worst is not None and worst.level is not None and worst.level > allowed * (1 + 1e-9):
        found.append(
            f"broker {worst.id} has {worst.level:.2f} × its fair share afterwards; the fullest has"
            f" {fullest(plan.before):.2f} × today, and the best reachable level is {plan.floor.level:.2f} ×"
        )
    before, after = leader_skew(plan.before), leader_skew(plan.after)
    if after > max(1.3, before * 1.1):
        leads = max(plan.after, key=lambda load: load.leader_weight)
        total = sum(load.leader_weight for load in plan.after) or 1.0
        found.append(
            f"broker {leads.id} leads {leads.leader_weight / total:.0%} by {plan.weighed_by} afterwards: the first"
            " replica of each line is the preferred leader"
        )
    changed = [len(move.new) - len(move.old) for move in plan.moves if len(move.new) > len(move.old)]
    if changed:
        found.append(f"{len(changed):,} partitions get more replicas")
    return found
