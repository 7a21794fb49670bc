"""Ten thousand partitions: planned, examined and run from facts alone; and a cluster with as many as a test can pay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from placement_models import check_plan, facts_of, grown_model
from plan_runs import PARTS, fill

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, ClusterFacts, TopicSpec, dump_facts
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.deciding import MoveState, PlanRun, decide
from ottla.admin.placement.executor import Executor, RunOptions
from ottla.admin.placement.journal import Journal
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import Move, fullest
from ottla.admin.placement.move_progress import MoveProgress
from ottla.admin.placement.placement_state import Goals
from ottla.admin.placement.planners import add_brokers, remove_brokers
from ottla.cli import main

MANY = 10_000


@pytest.fixture(scope="module")
def grown() -> Model:
    """Thirty brokers with ten thousand partitions, and six that joined empty."""
    return grown_model(1, brokers=30, partitions=MANY, joined=6)


@pytest.fixture(scope="module")
def facts(grown: Model) -> ClusterFacts:
    return facts_of(grown)


def test_plans_of_ten_thousand_partitions_keep_every_promise(grown: Model) -> None:
    filled = add_brokers(grown, [31, 32, 33, 34, 35, 36])
    check_plan(grown, filled, Goals())
    assert not filled.left_out
    assert not filled.is_cut_short
    assert fullest(filled.after) <= filled.floor.level * 1.0501
    emptied = remove_brokers(grown, [1, 2])
    check_plan(grown, emptied, Goals(), removed=[1, 2])
    assert len(emptied.moves) > 1_000
    assert emptied == remove_brokers(grown, [1, 2])


def test_facts_of_ten_thousand_partitions_are_examined_planned_and_checked(
    facts: ClusterFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("facts.json").write_bytes(dump_facts(facts))

    def ottla(*arguments: str) -> Result:
        ran = CliRunner().invoke(main, [*arguments, "--facts", "facts.json"], env={"OTTLA_CLUSTERS": "none.toml"})
        assert ran.exit_code in (0, 1), ran.output
        return ran

    examined = json.loads(ottla("doctor", "--format", "json").stdout)
    assert "BAL02" in {each["id"] for each in examined["items"]}, "six of its brokers are empty"
    ottla("plan", "rebalance", "-o", "plan.json")
    lines = json.loads(Path("plan.json").read_bytes())["partitions"]
    assert {broker for line in lines for broker in line["replicas"]} >= set(range(31, 37))
    assert len(lines) < MANY / 10, "what is named is what moves"


def test_a_run_of_thousands_of_moves_ends_after_few_looks(grown: Model, facts: ClusterFacts) -> None:
    """Everything under way is over when the run looks again: how often it has to look follows from its pace alone."""
    tiny = replace(grown, partitions=tuple(replace(each, size=each.size >> 20) for each in grown.partitions))
    plan = remove_brokers(tiny, [1, 2])
    now, ours, looks = facts_of(tiny), {}, 0
    while True:
        decision = decide(PlanRun(moves=plan.moves, ours=ours), now)
        if decision.is_over:
            break
        looks += 1
        assert decision.submit or decision.elect, "each look finds something to do"
        ours |= {(move.topic, move.partition): move.new for move in decision.submit}
        now = facts_of(moved(tiny, plan.moves, ours))
    assert {status.state for status in decision.statuses} == {MoveState.DONE}
    assert looks <= 20, f"{len(plan.moves):,} moves"


def moved(cluster: Model, moves: tuple[Move, ...], done: dict[tuple[str, int], tuple[int, ...]]) -> Model:
    """The cluster after these moves. The first replica leads."""
    new = {move.place: move.new for move in moves if (move.topic, move.partition) in done}
    return replace(
        cluster,
        partitions=tuple(
            replace(each, replicas=held, in_sync=held, leader=held[0], disks=dict.fromkeys(held, 0))
            for each in cluster.partitions
            for held in [new.get(each.place, each.replicas)]
        ),
    )


@pytest.mark.complete
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_that_joins_a_cluster_of_many_partitions_gets_its_part(tmp_path: Path) -> None:
    topics = {f"many-{number}": TopicSpec(partitions=400, replication_factor=1) for number in range(5)}
    looks: list[MoveProgress] = []
    with (
        EmbeddedCluster(brokers=3, log_dir_bytes=[4 << 30]) as cluster,
        Admin(cluster.bootstrap_servers, timeout_s=60) as admin,
    ):
        admin.create_topics(topics)
        for topic in topics:
            fill(cluster.bootstrap_servers, topic, partitions=400, records=1, size=2_000)
        joined = cluster.add_broker()
        plan = add_brokers(model_of(admin.facts(PARTS)), [joined])
        with Journal(tmp_path / "journal") as book:
            options = RunOptions(poll_s=0.2)
            outcome = Executor(admin.carry_out, plan.moves, book, options, report=looks.append).run()
        facts = admin.facts(PARTS)
    assert outcome.is_complete
    assert not facts.moves
    assert 400 <= sum(each.replicas == (joined,) for each in facts.by_partition.values()) <= 500
    assert all(facts.partition_bytes[place] > 2_000 for place in facts.by_partition), "every record is there"
    assert max(sum(each.state is MoveState.MOVING for each in look.statuses) for look in looks) <= 800
