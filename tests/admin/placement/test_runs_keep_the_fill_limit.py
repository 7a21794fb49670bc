"""A run on clusters of any shape, its moves ending in any order: no disk is above the fill limit at any moment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from placement_models import FILL, facts_of, models

from ottla.admin.facts.cluster_facts import ClusterFacts, MoveInfo
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.deciding import MoveState, PlanRun, decide
from ottla.admin.placement.move_plan import Move
from ottla.admin.placement.move_schedule import MovePace
from ottla.admin.placement.placement_state import Goals
from ottla.admin.placement.planners import rebalance, remove_brokers
from ottla.errors import InputError
from ottla.topics import TopicPartition

PACE = MovePace(per_broker=3, per_disk=2, bytes=400, small=10)
GOALS = Goals(pace=PACE)


class Cluster:
    """One disk for each broker. Copies take their whole room from the start, and what they replace is there as long."""

    def __init__(self, before: Model) -> None:
        self.brokers = before.brokers
        self.held = {each.place: each.replicas for each in before.partitions}
        self.model = before
        self.under_way: dict[TopicPartition, Move] = {}

    def begin(self, move: Move) -> None:
        """Kafka takes it."""
        self.under_way[move.place] = move
        self.held[move.place] = (*move.old, *move.adding)

    def end(self, place: TopicPartition) -> None:
        """All copies of it are in sync."""
        self.held[place] = self.under_way.pop(place).new

    def facts(self) -> ClusterFacts:
        """What is seen of it now."""
        now = [
            replace(each, replicas=held, in_sync=held, leader=held[0], disks=dict.fromkeys(held, 0), fixed="")
            for each in self.model.partitions
            for held in [self.held[each.place]]
        ]
        moves = [
            MoveInfo(
                topic=move.topic,
                partition=move.partition,
                replicas=self.held[place],
                adding=move.adding,
                removing=move.removing,
            )
            for place, move in self.under_way.items()
        ]
        return replace(facts_of(replace(self.model, partitions=tuple(now))), moves=tuple(moves))

    def check_fill(self) -> None:
        """No disk that is copied to is above its limit."""
        for broker in self.brokers:
            arrives = [move for move in self.under_way.values() if broker.id in move.adding and move.bytes]
            used = sum(each.size for each in self.model.partitions if broker.id in self.held[each.place])
            limit = int((broker.disks[0].total or 0) * FILL)
            assert not arrives or used <= limit, f"broker {broker.id} holds {used} of {limit}"


@pytest.mark.complete
@given(models(), st.data())
def test_no_disk_is_above_the_fill_limit_at_any_moment_of_a_run(drawn: Model, data: st.DataObject) -> None:
    brokers = [replace(each, disks=each.disks[:1], weight=float(each.disks[0].total or 0)) for each in drawn.brokers]
    partitions = [replace(each, disks=dict.fromkeys(each.replicas, 0), fixed="") for each in drawn.partitions]
    before = replace(drawn, brokers=tuple(brokers), partitions=tuple(partitions))
    removed = data.draw(st.sampled_from([None, *(each.id for each in brokers)]))
    try:
        plan = rebalance(before, goals=GOALS) if removed is None else remove_brokers(before, [removed], goals=GOALS)
    except InputError:
        assume(False)
    cluster = Cluster(before)
    ours: dict[tuple[str, int], tuple[int, ...]] = {}
    for _ in range(4 * len(plan.moves) + 4):
        decision = decide(PlanRun(moves=plan.moves, ours=ours, pace=PACE, max_fill=FILL), cluster.facts())
        if decision.is_over:
            break
        for move in decision.submit:
            ours[move.topic, move.partition] = move.new
            cluster.begin(move)
        cluster.check_fill()
        places = sorted(cluster.under_way)
        assert places, "nothing moves, and something is left"
        ended = data.draw(st.lists(st.sampled_from(places), min_size=1, unique=True))
        for place in ended:
            cluster.end(place)
    assert {status.state for status in decision.statuses} <= {MoveState.DONE}
    left = {(each.topic, each.partition) for each in plan.left_out}
    for move in plan.moves:
        assert (move.topic, move.partition) in left or cluster.held[move.place] == move.new
