"""Replicas that are moved under a throttle: they arrive at the rate that was set, and nobody in sync waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.replication.throttle import ByteBudget

MakeCluster = Callable[..., Any]
KB = 1_000
BATCH = 1_070
"""A record of a kilobyte, in a batch of its own. A fetch of a little more would bring the next one's beginning, which
counts and is thrown away."""


def moving(make_cluster: MakeCluster, **settings: Any) -> Any:
    """Broker 3 is added to a partition with about 100 kB; each fetch may bring about 10 kB."""
    side = "leader" if "leader.replication.throttled.rate" in settings else "follower"
    cluster = make_cluster(**{"replica.fetch.max.bytes": 10 * KB, **settings})
    cluster.create((1, 2), **{f"{side}_replication_throttled_replicas": "*"})
    for _ in range(100):
        cluster[1].append(b"x" * KB)
    cluster.settle()
    cluster.change(replicas=(1, 2, 3), adding_replicas=(3,))
    cluster.settle()
    return cluster


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_is_added_is_copied_at_the_rate_that_was_set(make_cluster: MakeCluster, side: str) -> None:
    cluster = moving(make_cluster, **{f"{side}.replication.throttled.rate": 10 * KB})
    total = cluster[1].partition().log.size_bytes()
    cluster.advance(3_000)
    early = cluster[3].partition().log.size_bytes()
    assert 20 * KB < early < 60 * KB
    results = cluster[1].append(b"while it is copied")
    cluster.settle()
    assert len(results) == 1, "replicas in sync are not held up"
    assert cluster.state.isr == (1, 2)
    cluster.advance(12_000)
    assert cluster[3].partition().log.size_bytes() > total
    assert set(cluster.state.isr) == {1, 2, 3}


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_the_rate_is_neither_exceeded_nor_missed_by_a_tenth(make_cluster: MakeCluster, side: str) -> None:
    rate = 10 * KB
    settings = {f"{side}.replication.throttled.rate": rate, "replica.fetch.max.bytes": BATCH}
    cluster = moving(make_cluster, **settings)
    cluster.advance(5_000, step_ms=10)
    assert 0.9 <= cluster[3].partition().log.size_bytes() / (5 * rate) <= 1.1


def test_without_a_rate_the_setting_of_the_topic_holds_nothing_up(make_cluster: MakeCluster) -> None:
    cluster = moving(make_cluster)
    cluster.advance(1_000)
    assert set(cluster.state.isr) == {1, 2, 3}


@pytest.mark.parametrize(("replicas", "is_held_up"), [("0:3", True), ("0:1", False), ("1:3,2:3", False)])
def test_only_the_named_replicas_are_held_up(make_cluster: MakeCluster, replicas: str, is_held_up: bool) -> None:
    cluster = make_cluster(**{"replica.fetch.max.bytes": 10 * KB, "follower.replication.throttled.rate": KB})
    cluster.create((1, 2), follower_replication_throttled_replicas=replicas)
    for _ in range(100):
        cluster[1].append(b"x" * KB)
    cluster.settle()
    cluster.change(replicas=(1, 2, 3), adding_replicas=(3,))
    cluster.advance(1_000)
    assert (set(cluster.state.isr) != {1, 2, 3}) is is_held_up


def test_a_budget_saves_up_a_fifth_of_a_second_and_makes_good_what_was_overdrawn() -> None:
    now = [0]
    budget = ByteBudget(rate=lambda: 100, now_ms=lambda: now[0])
    assert not budget.is_spent
    budget.spend(250)
    assert budget.is_spent
    assert budget.wait_ms == 1_000, "asked again after a second, for the rate may be raised meanwhile"
    now[0] += 2_301
    assert not budget.is_spent
    now[0] += 60_000
    budget.spend(100)
    assert budget.is_spent, "a minute without copying saves up no more than that"


def test_a_rate_of_zero_stops_copying() -> None:
    budget = ByteBudget(rate=lambda: 0, now_ms=lambda: 0)
    assert budget.is_spent
    assert budget.wait_ms > 0
