"""Which replica comes first, and so leads: writes are spread by reordering alone, which copies no byte.

A broker that leads too much hands a partition over to a broker that has a replica of it and room; where none has, that
one hands another on first, in a chain. A heavy partition needs more: who takes it hands on as many as make room, or all
is undone. Weights are write rates, or sizes where no rate was measured.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from ottla.admin.placement.placement_state import Placement

_STEPS = (1.0, 1.03, 1.07, 1.12, 1.2, 1.35, 1.6, 2.0, 3.0)
"""A goal that is this much higher is tried if one cannot be reached: the lowest one would need a solver."""
_WIDTH = 24
_FEWER = 6
_DEPTH = 4
_HEAVY = 1 / 6
"""A partition that is such a part of the goal is heavy: few of them decide, and nothing small takes their place."""
_PUSHED = 6
_PUSHED_ON = 12
_VAIN = 100
"""So many heavy ones of a broker are tried, so many hand-overs to make room for one, and so many without success in
all."""


class _Leading:
    def __init__(self, state: Placement) -> None:
        self.state = state
        self.weight = [float(each) for each in (state.rate if state.model.has_rates else state.size)]
        self.lead = [0.0] * len(state.ids)
        self.led: list[list[tuple[float, int]]] = [[] for _ in state.ids]
        """Partitions that each broker leads and may hand over, lightest first: a chain considers few of them."""
        for p, held in enumerate(state.replicas):
            if held:
                self.lead[held[0]] += self.weight[p]
                if state.movable[p]:
                    self.led[held[0]].append((self.weight[p], p))
        for led in self.led:
            led.sort()
        self.handed: list[tuple[int, int]] = []
        """Which leadership was handed over, and by which broker: to undo it."""
        self.in_vain = 0
        self.can = [broker.is_registered and not broker.is_fenced for broker in state.model.brokers]

    def hand_over(self, p: int, target: int) -> None:
        held = self.state.replicas[p]
        at, source = held.index(target), held[0]
        held[0], held[at] = target, source
        self.handed.append((p, source))
        key = self.weight[p], p
        del self.led[source][bisect_left(self.led[source], key)]
        insort(self.led[target], key)
        self.lead[source] -= self.weight[p]
        self.lead[target] += self.weight[p]

    def chain(self, b: int, too_much: float, limit: float, kept: int = -1) -> list[tuple[int, int]]:
        """Hand-overs, the last first, that free so much of a broker and leave no broker above its limit. [] if none.

        Breadth first over brokers, each looked at once, so that it is short and cheap. `kept` is not handed over.
        """
        weight, replicas, lead = self.weight, self.state.replicas, self.lead
        came: dict[int, tuple[int, int]] = {b: (-1, -1)}
        queue = [(b, too_much, 0)]
        for u, over, depth in queue:
            led = self.led[u]
            at = bisect_left(led, (over, -1))
            for _, p in led[at : at + _WIDTH]:
                if p == kept:
                    continue
                for t in replicas[p][1:]:
                    if t in came or not self.can[t] or weight[p] > limit:
                        continue
                    came[t] = (u, p)
                    rest = lead[t] + weight[p] - limit
                    if rest <= 0:
                        return self._path(came, t)
                    if depth + 1 < _DEPTH:
                        queue.append((t, rest, depth + 1))
        return []

    def _path(self, came: dict[int, tuple[int, int]], t: int) -> list[tuple[int, int]]:
        steps = []
        while came[t][0] >= 0:
            source, p = came[t]
            steps.append((p, t))
            t = source
        return steps

    def relieve(self, b: int, limit: float, kept: int = -1) -> bool:
        """Move leaders away from a broker: by the single change or chain of changes that ends its excess, else by the
        largest one possible. Returns whether anything moved."""
        too_much = self.lead[b] - limit
        steps = self.chain(b, too_much, limit, kept)
        if not steps:
            below = [weight for weight, _ in reversed(self.led[b]) if 0 < weight < too_much]
            for least in below[::4][:_FEWER]:
                steps = self.chain(b, least, limit, kept)
                if steps:
                    break
        for p, t in steps:
            self.hand_over(p, t)
        return bool(steps)

    def push(self, b: int, limit: float) -> bool:
        """Hand a heavy one over to a broker that has no room, and make room there by as many others as it takes."""
        for weight, p in self.led[b][: -_PUSHED - 1 : -1]:
            for t in self.state.replicas[p][1:]:
                if not self.can[t] or not limit * _HEAVY <= weight <= limit or self.in_vain >= _VAIN:
                    continue
                if self._pushed(p, t, limit):
                    return True
                self.in_vain += 1
        return False

    def _pushed(self, p: int, t: int, limit: float) -> bool:
        begun = len(self.handed)
        self.hand_over(p, t)
        while self.lead[t] > limit and len(self.handed) < begun + _PUSHED_ON and self.relieve(t, limit, kept=p):
            pass
        if self.lead[t] <= limit:
            return True
        for each, source in reversed(self.handed[begun:]):
            self.hand_over(each, source)
        del self.handed[begun:]
        return False


def spread_leaders(state: Placement, *, expired: Callable[[], bool]) -> None:
    """Reorder replicas until no broker leads more than the goal, or the least that was found."""
    leading = _Leading(state)
    count = sum(leading.can)
    if count < 2:
        return
    floor = max(sum(leading.lead) / count, max(leading.weight, default=0.0))
    if floor <= 0:
        return
    for step in _STEPS:
        limit = floor * (1 + state.goals.tolerance) * step
        stuck: set[int] = set()
        while not expired():
            over = [
                b
                for b in range(count and len(state.ids))
                if b not in stuck and leading.can[b] and leading.lead[b] > limit
            ]
            if not over:
                break
            b = max(over, key=lambda b: (leading.lead[b], -b))
            if not leading.relieve(b, limit) and not leading.push(b, limit):
                stuck.add(b)
        if not stuck or expired():
            return
