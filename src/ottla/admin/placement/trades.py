"""What is left where no replica fits anywhere and no exchange of two is enough: one or two for one or two.

With few large replicas that is often so: a broker has to give two of a kind for one of another to be as full as the
others. Pairs are many, so few replicas of each broker are looked at, and only when all else has failed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import combinations

from ottla.admin.placement.placement_state import Placement

_PARTNERS = 12
_PAIRED = 16
"""Number of replicas of a broker up to which every pair is tried."""
_NEAR = 3
_LEAST_GAIN = 0.02
"""A trade that takes less of what is too much is not worth its bytes."""

Set = tuple[int, ...]


def trade(state: Placement, b: int) -> bool:
    """Swap replicas of a broker that is too full for replicas of one that remains less full. Returns False if no swap
    helps. The best swap leaves the fuller of both lowest, then costs the least for the space that it frees."""
    if not state.limit[b]:
        return False
    level, excess = state.load[b] / state.limit[b], state.excess(b)
    best: tuple[float, float, Set, Set, int] | None = None
    for t in state.by_room()[:_PARTNERS]:
        most = level * state.limit[t] - state.load[t]
        if t == b or not state.limit[t] or most <= 0:
            continue
        for ours, theirs, gain in _pairs(state, b, t, wanted=min(excess, most / 2)):
            after = max((state.load[t] + gain) / state.limit[t], (state.load[b] - gain) / state.limit[b], 1.0)
            if gain < excess * _LEAST_GAIN or after >= level * (1 - 1e-6):
                continue
            cost = sum(state.cost(p, b, t) for p in ours) + sum(state.cost(p, t, b) for p in theirs)
            key = (after, cost / min(gain, excess), ours, theirs, t)
            if (best is None or key < best) and state.may_trade(ours, b, theirs, t):
                best = key
    if best is None:
        return False
    *_, ours, theirs, t = best
    for p in ours:
        state.move(p, b, t)
    for p in theirs:
        state.move(p, t, b)
    return True


def _pairs(state: Placement, b: int, t: int, *, wanted: float) -> Iterator[tuple[Set, Set, float]]:
    """Yield what b gives, what comes back from t, and the bytes that b has less: about as many as wanted."""
    back = _sets(state, t)
    for size, ours in _sets(state, b):
        at = bisect_left(back, (size - wanted,))
        for returned, theirs in back[max(0, at - _NEAR) : at + _NEAR + 1]:
            yield ours, theirs, size - returned


def _sets(state: Placement, b: int) -> list[tuple[float, Set]]:
    """Return sets of one or two replicas of a broker with their bytes, smallest first, from a sample of many."""
    held = state.by_size(b)
    count = len(held)
    few = held if count <= _PAIRED else [held[at * (count - 1) // (_PAIRED - 1)] for at in range(_PAIRED)]
    return sorted(
        (float(sum(state.size[p] for p in each)), each) for each in (*combinations(few, 1), *combinations(few, 2))
    )
