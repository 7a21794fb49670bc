"""The search: the fullest broker down to the goal with fewest bytes. Greedy moves, then exchanges, then small repairs.

*Shed* moves replicas from a broker that is too full to brokers with room. *Exchange* gives a large one for a smaller.
*Shift* moves what fits nowhere to where it does less harm. *Trade* gives one or two for one or two, where nothing
else helps. *Trim* takes back what turned out not to be needed; where a broker is still too full, that opened other
ways, and the search goes on from there. Every step lowers the fullest, or the bytes, so it ends; ties are broken by
index, so it is the same every time. `expired` says that the time is up: what was found until then is the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection

from ottla.admin.placement.placement_state import Placement
from ottla.admin.placement.trades import trade

_GOOD_ENOUGH = 1.10
"""One replica that ends an excess and is at most so much larger is better than several that fit exactly."""
_TRIES = 60
_PARTNERS = 12
_CLOSE = 1e-9
_LEAST_GAIN = 0.02
"""An exchange that takes less of what is too much is not worth its bytes."""
_ROUNDS = 4
"""How many more rounds the search makes after it removed unnecessary moves."""


def spread(state: Placement, *, expired: Callable[[], bool], only: Collection[int] = ()) -> None:
    """Bring all brokers below their limits, as far as it goes. `only`: brokers by index that alone may receive."""
    for _ in range(_ROUNDS):
        _lower(state, expired=expired, only=only)
        before = [tuple(held) for held in state.replicas] if _too_full(state) else []
        trim(state, expired=expired)
        if not before or expired() or before == [tuple(held) for held in state.replicas]:
            return


def _lower(state: Placement, *, expired: Callable[[], bool], only: Collection[int]) -> None:
    """Step by step from the fullest broker, until none is too full or no step is known."""
    stuck: set[int] = set()
    shifts = 0
    while not expired():
        over = [b for b in _too_full(state) if b not in stuck]
        if not over:
            break
        b = max(over, key=lambda b: (state.load[b] / state.limit[b] if state.limit[b] else 0.0, -b))
        if _shed(state, b, only, cool=True) or _exchange(state, b, only) or _shed(state, b, only, cool=False):
            continue
        if not only and shifts < 40 * len(state.ids) and (_shift(state, b) or trade(state, b)):
            shifts += 1
            stuck.clear()
            continue
        stuck.add(b)


def _too_full(state: Placement) -> list[int]:
    return [b for b in range(len(state.ids)) if state.receives[b] and state.excess(b) > _CLOSE * state.limit[b]]


def _target(state: Placement, p: int, b: int, order: list[int], *, cool: bool) -> int | None:
    """Return where `p` fits below the limit: most room first, and home before everything."""
    size, rate = state.size[p], state.rate[p]
    for t in state.home[p]:
        if t != b and state.load[t] + size <= state.limit[t] and state.may_go(p, b, t):
            return t
    for t in order:
        if state.load[t] + size > state.limit[t]:
            break  # sorted by room: the others have less
        if cool and rate and state.rate_in[t] + rate > state.rate_limit[t]:
            continue
        if t != b and state.may_go(p, b, t):
            return t
    return None


def _order(state: Placement, only: Collection[int]) -> list[int]:
    order = state.by_room()
    return [t for t in order if t in only] if only else order


def _shed(state: Placement, b: int, only: Collection[int], *, cool: bool) -> bool:
    """Move one replica off a broker that is too full. The cheapest that ends the excess, else the largest that fits."""
    order = _order(state, only)
    if not order:
        return False
    excess, size = state.excess(b), state.size
    held = state.by_size(b)
    # What moves already costs nothing to send elsewhere.
    for p in reversed(held):
        if b not in state.home[p]:
            target = _target(state, p, b, order, cool=cool)
            if target is not None:
                state.move(p, b, target)
                return True
    at = bisect_left(held, excess, key=lambda p: size[p])
    ending: tuple[int, int] | None = None
    for p in held[at : at + _TRIES]:
        target = _target(state, p, b, order, cool=cool)
        if target is not None:
            ending = p, target
            break
    if ending is not None and size[ending[0]] <= excess * _GOOD_ENOUGH:
        state.move(ending[0], b, ending[1])
        return True
    # A giant is not moved for what is beside it.
    crumbs = 64 if ending is not None and size[ending[0]] > state.limit[b] / 2 else 8
    for p in reversed(held[:at]):
        if ending is not None and size[p] * crumbs < excess:
            break  # dozens of moves for a few bytes less
        target = _target(state, p, b, order, cool=cool)
        if target is not None:
            state.move(p, b, target)
            return True
    if ending is not None:
        state.move(ending[0], b, ending[1])
        return True
    return False


def _exchange(state: Placement, b: int, only: Collection[int]) -> bool:
    """Exchange a large replica for a smaller one of a broker with room, choosing the pair that moves the fewest bytes
    for the space that it frees. Returns whether there was such a pair."""
    size, excess = state.size, state.excess(b)
    held = state.by_size(b)
    best: tuple[float, int, int, int] | None = None
    for t in _order(state, only)[:_PARTNERS]:
        room = state.limit[t] - state.load[t]
        if t == b or room <= 0:
            continue
        theirs = state.by_size(t)
        for p in held[-_TRIES:]:
            # The smaller one must leave what goes there below the limit.
            at = bisect_left(theirs, size[p] - min(room, excess), key=lambda other: size[other])
            for other in theirs[max(0, at - 2) : at + 3]:
                gain = size[p] - size[other]
                if not 0 < gain <= room or not state.may_exchange(p, b, other, t):
                    continue
                cost = state.cost(p, b, t) + state.cost(other, t, b)
                key = (cost / min(gain, excess), p, other, t)
                if best is None or key < best:
                    best = key
    if best is None:
        return False
    _, p, other, t = best
    if min(size[p] - size[other], excess) < 1e-3 * excess:
        return False
    _swap(state, p, b, other, t)
    return True


def _swap(state: Placement, p: int, b: int, other: int, t: int) -> None:
    state.move(p, b, t)
    state.move(other, t, b)


def _shift(state: Placement, b: int) -> bool:
    """Move it to a broker that exceeds its limit afterwards, by less than this one is now."""
    level = state.load[b] / state.limit[b] if state.limit[b] else 0.0
    best: tuple[float, float, int, int] | None = None
    for p in state.by_size(b)[-_TRIES:]:
        for t in range(len(state.ids)):
            if t == b or not state.limit[t]:
                continue
            after = (state.load[t] + state.size[p]) / state.limit[t]
            if after >= level * (1 - 1e-6) or not state.may_go(p, b, t):
                continue
            mine = (state.load[b] - state.size[p]) / state.limit[b]
            key = (max(after, mine), state.cost(p, b, t), p, t)
            if best is None or key < best:
                best = key
    if best is None:
        return False
    state.move(best[2], b, best[3])
    return True


def trim(state: Placement, *, expired: Callable[[], bool]) -> None:
    """Take back what is not needed: home where it fits, or a smaller replica of the same broker in its place."""
    moved = [
        (state.size[p], p, b)
        for p, held in enumerate(state.replicas)
        if state.movable[p] and state.size[p]
        for b in held
        if b not in state.home[p]
    ]
    for _, p, b in sorted(moved, reverse=True):
        if expired():
            return
        if b in state.replicas[p] and not _goes_home(state, p, b):
            _smaller_instead(state, p, b)


def _goes_home(state: Placement, p: int, b: int) -> bool:
    for home in sorted(state.home[p] - set(state.replicas[p])):
        if state.load[home] + state.size[p] <= state.limit[home] and state.may_go(p, b, home):
            state.move(p, b, home)
            return True
    return False


def _smaller_instead(state: Placement, p: int, b: int) -> None:
    """Move a smaller partition than `p` instead, where it would free its broker as well: `p` left because that was
    full."""
    for home in sorted(state.home[p] - set(state.replicas[p])):
        if not state.receives[home]:
            continue
        too_much = state.load[home] + state.size[p] - state.limit[home]
        theirs = state.by_size(home)
        at = bisect_left(theirs, too_much, key=lambda other: state.size[other])
        for other in theirs[at : at + 6]:
            if state.size[other] >= state.size[p] or home not in state.home[other]:
                break
            if state.may_exchange(p, b, other, home):
                _swap(state, p, b, other, home)
                return


def cool(state: Placement, *, expired: Callable[[], bool]) -> None:
    """Send replicas that move anyway elsewhere, where a plan gives a broker too many writes: that costs nothing. Where
    it is not enough, move a few others."""
    for b in sorted(range(len(state.ids)), key=lambda b: (state.rate_limit[b] - state.rate_in[b], b)):
        arriving = sorted(
            (p for p in state.on[b] if b not in state.home[p] and state.rate[p]), key=lambda p: (-state.rate[p], p)
        )
        for p in arriving:
            if expired() or state.rate_in[b] <= state.rate_limit[b]:
                break
            target = _target(state, p, b, _order(state, ()), cool=True)
            if target is not None:
                state.move(p, b, target)
            else:
                _cooler_instead(state, p, b)
        if not expired():
            _send_away_what_is_written(state, b)


def _send_away_what_is_written(state: Placement, b: int) -> None:
    """Move away the partitions with the most writes per byte, where moving arrivals was not enough."""
    if state.rate_in[b] <= state.rate_limit[b]:
        return
    held = (p for p in state.on[b] if state.rate[p] and state.movable[p])
    for p in sorted(held, key=lambda p: (state.size[p] / state.rate[p], p))[:_TRIES]:
        if state.rate_in[b] <= state.rate_limit[b]:
            return
        target = _target(state, p, b, _order(state, ()), cool=True)
        if target is not None:
            state.move(p, b, target)
    while state.rate_in[b] > state.rate_limit[b] and _exchange_writes(state, b):
        pass


def _exchange_writes(state: Placement, b: int) -> bool:
    """Exchange a partition with many writes for one with few, at the least cost: brokers that may take more writes are
    full."""
    size, rate = state.size, state.rate
    excess = state.rate_in[b] - state.rate_limit[b]
    room_here = max(0.0, state.limit[b] - state.load[b])
    hot = sorted((p for p in state.on[b] if state.movable[p]), key=lambda p: (-rate[p], p))[:_PARTNERS]
    best: tuple[float, int, int, int] | None = None
    for t in sorted(_order(state, ()), key=lambda t: (state.rate_in[t] - state.rate_limit[t], t))[:_PARTNERS]:
        rate_room, room_there = state.rate_limit[t] - state.rate_in[t], max(0.0, state.limit[t] - state.load[t])
        if t == b or rate_room <= 0:
            continue
        for p in hot:
            for other in state.on[t]:
                gain, grows = rate[p] - rate[other], size[other] - size[p]
                if not excess * _LEAST_GAIN <= gain <= rate_room or grows > room_here or -grows > room_there:
                    continue
                key = (state.cost(p, b, t) + state.cost(other, t, b)) / min(gain, excess), p, other, t
                if (best is None or key < best) and state.may_exchange(p, b, other, t):
                    best = key
    if best is None:
        return False
    _, p, other, t = best
    _swap(state, p, b, other, t)
    return True


def _cooler_instead(state: Placement, p: int, b: int) -> None:
    for t in _order(state, ()):
        if t == b or state.rate_in[t] + state.rate[p] > state.rate_limit[t] * 2:
            continue
        room_here, room_there = state.limit[b] - state.load[b], state.limit[t] - state.load[t]
        arriving = (other for other in state.on[t] if t not in state.home[other])
        for other in sorted(arriving, key=lambda other: (state.rate[other], other)):
            gain = state.rate[p] - state.rate[other]
            if gain <= 0:
                break
            if state.rate_in[t] + gain > state.rate_limit[t]:
                continue
            grows = state.size[other] - state.size[p]
            if grows <= max(0.0, room_here) and -grows <= max(0.0, room_there) and state.may_exchange(p, b, other, t):
                _swap(state, p, b, other, t)
                return
