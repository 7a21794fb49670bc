"""The planners: `rebalance`, `add_brokers`, `remove_brokers`, `replication_factor`, `spread_dirs`, `balance_leaders`.

Each takes a model and returns a plan; the same model gives the same plan. `expired` says whether the time for the
search ends: the best that was found until then is the plan, and it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.disk_choice import DiskPlan, choose_disks
from ottla.admin.placement.leaders import spread_leaders
from ottla.admin.placement.move_plan import MovePlan
from ottla.admin.placement.placement_state import DEFAULT_GOALS, Goals, Placement
from ottla.admin.placement.plan_report import Reporting
from ottla.admin.placement.repair import evacuate, set_factor, spread_over_racks
from ottla.admin.placement.spread import cool, spread
from ottla.errors import InputError

Expired = Callable[[], bool]


def never() -> bool:
    """Return a search without a deadline."""
    return False


def rebalance(model: Model, *, goals: Goals = DEFAULT_GOALS, expired: Expired = never) -> MovePlan:
    """Bring the fullest broker down to what can be reached, with fewest bytes; mend racks and lost replicas before."""
    return _by_bytes("rebalance", model, goals, expired)


def add_brokers(
    model: Model,
    brokers: Collection[int],
    *,
    goals: Goals = DEFAULT_GOALS,
    expired: Expired = never,
) -> MovePlan:
    """Fill brokers that joined. Others receive only what is needed to reach the goal. InputError for unknown ones."""
    _registered(model, brokers)
    for broker in brokers:
        if not model.by_id[broker].can_receive:
            raise InputError(
                f"broker {broker}: found it fenced or without a usable log directory, wanted a live broker"
            )
    return _by_bytes("add-brokers", model, goals, expired, added=brokers)


def remove_brokers(
    model: Model,
    brokers: Collection[int],
    *,
    goals: Goals = DEFAULT_GOALS,
    expired: Expired = never,
) -> MovePlan:
    """Empty brokers, so that they can be stopped; those that are gone may be named too. InputError if it cannot be."""
    known = {broker.id for broker in model.brokers}
    for broker in brokers:
        if broker not in known:
            raise InputError(f"broker {broker}: the cluster has no such broker, and no replica is placed on it")
    return _by_bytes("remove-brokers", model, goals, expired, removed=brokers)


def replication_factor(
    model: Model,
    factors: Mapping[str, int],
    *,
    goals: Goals = DEFAULT_GOALS,
    expired: Expired = never,
) -> MovePlan:
    """Give topics so many replicas. Nothing else moves. InputError for more than there are brokers."""
    live = sum(broker.can_receive for broker in model.brokers)
    topics = {each.topic for each in model.partitions}
    for topic, factor in factors.items():
        if topic not in topics:
            raise InputError(f"{topic}: the cluster has no such topic")
        if not 1 <= factor <= live:
            raise InputError(f"{topic}: found {factor} replicas, wanted 1 to {live}, the brokers that are up")
    state = Placement(model, goals, factors=factors)
    evacuate(state, _lost(model, [each.topic in factors for each in model.partitions]))
    set_factor(state, factors)
    disks = choose_disks(state, expired=expired, move_between=False)
    return _report("replication-factor", state, disks, expired)


def spread_dirs(
    model: Model,
    brokers: Collection[int] | None = None,
    *,
    goals: Goals = DEFAULT_GOALS,
    expired: Expired = never,
) -> MovePlan:
    """Balance the disks within brokers (None: within all). No replica changes its broker."""
    _registered(model, brokers or ())
    state = Placement(model, goals)
    disks = choose_disks(state, expired=expired, brokers=brokers)
    return _report("dirs", state, disks, expired)


def balance_leaders(model: Model, *, goals: Goals = DEFAULT_GOALS, expired: Expired = never) -> MovePlan:
    """Spread writes by reordering replicas. No byte is copied."""
    state = Placement(model, goals)
    spread_leaders(state, expired=expired)
    return _report("leaders", state, DiskPlan(), expired)


def _by_bytes(
    kind: str,
    model: Model,
    goals: Goals,
    expired: Expired,
    *,
    removed: Collection[int] = (),
    added: Collection[int] = (),
) -> MovePlan:
    gone = {*removed, *_lost(model, [True] * len(model.partitions))}
    state = Placement(model, goals, removed=gone)
    evacuate(state, gone)
    spread_over_racks(state)
    if added:
        spread(state, expired=expired, only={at for at, broker in enumerate(state.ids) if broker in added})
    spread(state, expired=expired)
    if model.has_rates:
        cool(state, expired=expired)
    spread_leaders(state, expired=expired)
    disks = choose_disks(state, expired=expired)
    return _report(kind, state, disks, expired, removed=frozenset(gone))


def _report(
    kind: str,
    state: Placement,
    disks: DiskPlan,
    expired: Expired,
    *,
    removed: frozenset[int] = frozenset(),
) -> MovePlan:
    return Reporting(state, disks, removed=removed).plan(kind, is_cut_short=expired())


def _registered(model: Model, brokers: Collection[int]) -> None:
    for broker in brokers:
        if broker not in model.by_id or not model.by_id[broker].is_registered:
            known = ", ".join(str(each.id) for each in model.brokers if each.is_registered)
            raise InputError(f"broker {broker}: the cluster has no such broker, wanted one of {known}")


def _lost(model: Model, of: list[bool]) -> set[int]:
    """Return unregistered brokers that have replicas of these partitions, if those may move."""
    chosen = (each for each, wanted in zip(model.partitions, of, strict=True) if wanted and not each.fixed)
    return {
        broker
        for each in chosen
        for broker in each.replicas
        if broker not in model.by_id or not model.by_id[broker].is_registered
    }
