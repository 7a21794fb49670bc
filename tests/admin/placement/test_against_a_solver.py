"""Plans of small clusters beside the optimum, which a solver finds for the same goal. scipy is needed only here."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from placement_models import grown_model

from ottla.admin.placement.model import Model
from ottla.admin.placement.plan import Plan, fullest
from ottla.admin.placement.planners import rebalance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("scipy") is None, reason="pip install scipy, to compare plans with the optimum"),
]


@pytest.mark.parametrize(
    ("seed", "factor", "joined", "mixed"), [(1, 2, 0, 0), (2, 3, 2, 0), (3, 2, 1, 1), (4, 3, 0, 1)]
)
def test_a_plan_moves_hardly_more_bytes_than_the_least_that_reach_the_goal(
    seed: int, factor: int, joined: int, mixed: int
) -> None:
    cluster = grown_model(seed, brokers=6, partitions=60, factor=factor, racks=3, joined=joined, mixed=bool(mixed))
    plan = rebalance(cluster)
    optimum = least_bytes(cluster, plan)
    assert optimum is not None, "a plan reached it, so it can be reached"
    assert fullest(plan.after) <= plan.floor.level * 1.0501
    assert plan.bytes_copied <= 1.6 * optimum


def least_bytes(cluster: Model, plan: Plan) -> float | None:
    """The bytes of the cheapest placement that keeps every broker below the plan's goal; None where the time ended."""
    import numpy as np
    from scipy import optimize  # half a second, which collecting tests need not take

    brokers, partitions = cluster.brokers, cluster.partitions
    width = len(brokers)
    unit = max(each.size for each in partitions)
    costs, rows, least, most = [], [], [], []
    for p, each in enumerate(partitions):
        costs += [each.size / unit if broker.id not in each.replicas else 0.0 for broker in brokers]
        chosen = np.zeros(len(partitions) * width)
        chosen[p * width : (p + 1) * width] = 1
        rows.append(chosen)
        least.append(len(each.replicas))
        most.append(len(each.replicas))
        for rack in cluster.racks:
            row = np.zeros(len(partitions) * width)
            row[[p * width + b for b, broker in enumerate(brokers) if (broker.rack or "") == rack]] = 1
            rows.append(row)
            least.append(0)
            most.append(1)
    for b, load in enumerate(plan.before):
        row = np.zeros(len(partitions) * width)
        row[b::width] = [each.size / unit for each in partitions]
        rows.append(row)
        part = load.bytes / load.level if load.level else share_of(plan, cluster, b)
        least.append(0)
        most.append(part * plan.floor.level * (1 + plan.tolerance) / unit)
    found = optimize.milp(
        np.array(costs),
        integrality=np.ones(len(costs)),
        bounds=optimize.Bounds(0, 1),
        constraints=optimize.LinearConstraint(np.array(rows), least, most),
        options={"time_limit": 20, "mip_rel_gap": 0.01},
    )
    return None if found.x is None else float(found.mip_dual_bound or found.fun) * unit


def share_of(plan: Plan, cluster: Model, b: int) -> float:
    """The fair part of a broker that is empty."""
    total = sum(load.bytes for load in plan.before)
    return total * cluster.brokers[b].weight / sum(broker.weight for broker in cluster.brokers)
