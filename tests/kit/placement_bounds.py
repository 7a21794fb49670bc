"""What no plan can stay below: bytes by what is above the limits, leaders by a linear program."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.move_plan import MovePlan


def least_bytes(plan: MovePlan) -> float:
    """No plan copies less than what is on brokers that go, and what is above the limits of the others."""
    allowed = plan.floor.level * (1 + plan.tolerance)
    above = (load.bytes * (1 - allowed / load.level) for load in plan.before if load.level and load.level > allowed)
    return sum(above) + sum(load.bytes for load in plan.before if load.level is None)


def leaders_at_least(cluster: Model, plan: MovePlan) -> float | None:
    """The least that the busiest leader can have with the plan's replicas, by a linear program. None without scipy."""
    try:
        import numpy as np
        from scipy.optimize import linprog
        from scipy.sparse import coo_array
    except ImportError:
        return None
    new = {move.place: move.new for move in plan.moves}
    rows: list[tuple[int, int, float]] = []
    once: list[tuple[int, int, float]] = []
    index = {broker.id: at for at, broker in enumerate(cluster.brokers)}
    column = 0
    for number, each in enumerate(cluster.partitions):
        for broker in new.get(each.place, each.replicas):
            rows.append((index[broker], column, each.rate))
            once.append((number, column, 1.0))
            column += 1
    rows += [(at, column, -1.0) for at in range(len(index))]
    cost = np.zeros(column + 1)
    cost[column] = 1.0

    def matrix(cells: Sequence[tuple[int, int, float]], height: int) -> object:
        y, x, values = zip(*cells, strict=True)
        return coo_array((values, (y, x)), shape=(height, column + 1))

    found = linprog(
        cost,
        A_ub=matrix(rows, len(index)),
        b_ub=np.zeros(len(index)),
        A_eq=matrix(once, len(cluster.partitions)),
        b_eq=np.ones(len(cluster.partitions)),
    )
    return max(float(found.fun), max(each.rate for each in cluster.partitions)) if found.success else None
