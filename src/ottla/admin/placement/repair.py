"""Repairs before balance: replicas on brokers that leave or are gone, the number of replicas, racks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.admin.placement.placement_state import Placement
from ottla.errors import InputError


def evacuate(state: Placement, removed: Collection[int]) -> None:
    """Empty these brokers, the largest replicas first. InputError where nothing takes one."""
    sources = [b for b, broker in enumerate(state.ids) if broker in removed]
    waiting = sorted(
        ((p, b) for b in sources for p in state.on[b]), key=lambda each: (-state.size[each[0]], each[0], each[1])
    )
    for p, b in waiting:
        if not state.movable[p]:
            raise InputError(
                f"{state.model.partitions[p].place}: cannot leave broker {state.ids[b]}: {_fixed(state, p)}"
            )
        target = best_target(state, p, b)
        if target is None:
            raise InputError(
                f"{state.model.partitions[p].place}: found no broker that can take its replica of broker"
                f" {state.ids[b]} ({state.size[p]:,} bytes), wanted one that is up, has room below the fill"
                " limit and no replica of it"
            )
        state.move(p, b, target)


def set_factor(state: Placement, factors: Mapping[str, int]) -> None:
    """Give the partitions of topics so many replicas. What stays, stays in its order."""
    chosen = [p for p, each in enumerate(state.model.partitions) if each.topic in factors]
    for p in sorted(chosen, key=lambda p: (-state.size[p], p)):
        wanted = factors[state.model.partitions[p].topic]
        if len(state.replicas[p]) != wanted and not state.movable[p]:
            raise InputError(f"{state.model.partitions[p].place}: cannot get {wanted} replicas: {_fixed(state, p)}")
        while len(state.replicas[p]) > wanted:
            state.remove(p, _worst(state, p))
        while len(state.replicas[p]) < wanted:
            target = best_target(state, p, -1)
            if target is None:
                raise InputError(
                    f"{state.model.partitions[p].place}: found no broker for replica {len(state.replicas[p]) + 1} of"
                    f" {wanted}, wanted one that is up and has room for {state.size[p]:,} bytes below the fill limit"
                )
            state.add(p, target)


def spread_over_racks(state: Placement) -> None:
    """Move one of two replicas in the same rack to another rack, where a partition is in fewer racks than there are."""
    for p in sorted(range(len(state.replicas)), key=lambda p: (-state.size[p], p)):
        if not state.movable[p]:
            continue
        while len(racks := state.racks_of(p)) < min(state.racks_wanted[p], len(state.replicas[p])):
            twice = [b for b in state.replicas[p] if state.rack[b] in state.racks_of(p, without=b)]
            choices = [
                (state.load[t] + state.size[p] > state.limit[t], -state.excess(b), state.level(t), b, t)
                for b in twice
                for t in range(len(state.ids))
                if state.rack[t] not in racks and state.may_go(p, b, t)
            ]
            if not choices:
                break
            *_, b, t = min(choices)
            state.move(p, b, t)


def best_target(state: Placement, p: int, source: int) -> int | None:
    """Return the broker that takes a replica best: within its limit and rate if one does, with most room; else least
    harm."""
    size, rate = state.size[p], state.rate[p]
    found: tuple[bool, bool, float, int] | None = None
    for t in range(len(state.ids)):
        if not state.may_go(p, source, t):
            continue
        if source < 0 and len(state.racks_of(p)) < state.racks_wanted[p] and state.rack[t] in state.racks_of(p):
            continue
        share = state.weight[t] * state.mean
        after = (state.load[t] + size) / share if share > 0 else float(len(state.on[t]))
        # Replicas without bytes still cost: among equals, to the broker that has fewest.
        key = (state.load[t] + size > state.limit[t], state.rate_in[t] + rate > state.rate_limit[t], after, t)
        if size == 0:
            key = (False, False, float(len(state.on[t])), t)
        if found is None or key < found:
            found = key
    return None if found is None else found[-1]


def _worst(state: Placement, p: int) -> int:
    """Return the replica to remove: never the leader, never the last one of a rack; out-of-sync replicas first, then
    those on full brokers."""
    fact = state.model.partitions[p]
    racks = len(state.racks_of(p))

    def key(b: int) -> tuple[bool, bool, bool, float, int]:
        loses = len(state.racks_of(p, without=b)) < min(racks, state.racks_wanted[p])
        return state.ids[b] == fact.leader, state.ids[b] in fact.in_sync, loses, -state.level(b), b

    return min(state.replicas[p], key=key)


def _fixed(state: Placement, p: int) -> str:
    return state.model.partitions[p].fixed
