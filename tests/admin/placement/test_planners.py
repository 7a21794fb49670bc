"""What holds of every plan, on clusters of any shape; and what a plan reaches on clusters as they grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placement_bounds import leaders_at_least, least_bytes
from placement_models import broker, check_plan, facts_of, grown_model, has_no_giant, model, models, partition

from ottla.admin.facts.cluster_facts import BrokerInfo, ClusterFacts, LogDirInfo, PartitionInfo, ReplicaInfo, TopicInfo
from ottla.admin.facts.rates import Rates
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import fullest, leader_skew
from ottla.admin.placement.move_schedule import MovePace
from ottla.admin.placement.placement_state import Goals, Placement
from ottla.admin.placement.planners import (
    add_brokers,
    balance_leaders,
    rebalance,
    remove_brokers,
    replication_factor,
    spread_dirs,
)
from ottla.errors import InputError

GOALS = Goals(pace=MovePace(per_broker=2, per_disk=1, bytes=200, small=20))


@given(models())
def test_a_rebalance_makes_no_broker_fuller_than_the_fullest_and_loses_nothing(cluster: Model) -> None:
    plan = rebalance(cluster, goals=GOALS)
    check_plan(cluster, plan, GOALS)
    assert plan == rebalance(cluster, goals=GOALS), "the same cluster gives the same plan"
    repaired = any("rack" in move.why for move in plan.moves)
    if not plan.left_out and not repaired:
        assert fullest(plan.after) <= max(fullest(plan.before), plan.floor.level * 1.05) * (1 + 1e-9)


@given(models())
def test_what_can_be_reached_is_never_above_what_a_plan_has(cluster: Model) -> None:
    if any(each.fixed for each in cluster.partitions) or any(each.is_fenced for each in cluster.brokers):
        return
    plan = rebalance(cluster, goals=GOALS)
    apart = all(
        len({cluster.rack_of(b) for b in move.new}) >= min(len(move.new), len(cluster.racks)) for move in plan.moves
    )
    still = all(
        len({cluster.rack_of(b) for b in each.replicas}) >= min(len(each.replicas), len(cluster.racks))
        for each in cluster.partitions
        if each.place not in {move.place for move in plan.moves}
    )
    if apart and still and sum(each.size for each in cluster.partitions):
        assert fullest(plan.after) >= plan.floor.level * (1 - 1e-6)


def test_a_replica_on_a_broker_with_cordoned_disks_alone_does_not_raise_what_can_be_reached() -> None:
    sizes = [(300,), (300,), (300, 300), (1_000,), (1_000,), (300,)]
    brokers = [broker(number, disks=disks) for number, disks in enumerate(sizes, 1)]
    brokers[5] = replace(brokers[5], disks=tuple(replace(disk, can_receive=False) for disk in brokers[5].disks))
    plan = rebalance(model(brokers, [partition("t0", 0, 1, (1, 2, 6))]), goals=GOALS)
    assert fullest(plan.after) >= plan.floor.level * (1 - 1e-6)


@given(models(), st.data())
def test_a_broker_that_is_removed_is_empty_afterwards(cluster: Model, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from([each.id for each in cluster.brokers]))
    try:
        plan = remove_brokers(cluster, [chosen], goals=GOALS)
    except InputError:
        return  # nobody has room, or a partition may not move: the message of that is tested below
    check_plan(cluster, plan, GOALS, removed=[chosen])
    left = {(each.topic, each.partition) for each in plan.left_out}
    new = {move.place: move.new for move in plan.moves}
    for each in cluster.partitions:
        if (each.topic, each.partition) not in left:
            assert chosen not in new.get(each.place, each.replicas)


@given(models(), st.integers(1, 4))
def test_a_replication_factor_changes_and_nothing_else(cluster: Model, factor: int) -> None:
    if not any(each.topic == "t0" for each in cluster.partitions):
        return
    try:
        plan = replication_factor(cluster, {"t0": factor}, goals=GOALS)
    except InputError:
        return
    check_plan(cluster, plan, GOALS, factors={"t0": factor})
    assert {move.topic for move in plan.moves} <= {"t0"}
    for move in plan.moves:
        before = cluster.by_place[move.place]
        assert set(move.new) >= set(move.old) if factor >= len(move.old) else set(move.new) < set(move.old)
        assert before.leader in move.new, "the leader stays"


@given(models())
def test_moves_between_disks_leave_every_replica_on_its_broker(cluster: Model) -> None:
    plan = spread_dirs(cluster, goals=GOALS)
    check_plan(cluster, plan, GOALS)
    assert all(move.new == move.old and move.disk_moves for move in plan.moves)


@given(models())
def test_leaders_are_spread_without_a_byte(cluster: Model) -> None:
    plan = balance_leaders(cluster, goals=GOALS)
    check_plan(cluster, plan, GOALS)
    assert plan.bytes_copied == 0
    assert all(set(move.new) == set(move.old) for move in plan.moves)
    before = max(load.leader_weight for load in plan.before)
    assert max(load.leader_weight for load in plan.after) <= before + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_a_grown_cluster_comes_near_what_can_be_reached_with_few_bytes(seed: int) -> None:
    cluster = grown_model(
        seed, brokers=12 + seed, partitions=600, racks=(1, 3)[seed % 2], joined=seed % 3, mixed=seed > 3
    )
    plan = rebalance(cluster)
    check_plan(cluster, plan, Goals())
    assert fullest(plan.after) <= plan.floor.level * 1.0501
    assert plan.bytes_copied <= 1.25 * least_bytes(plan) + max(each.size for each in cluster.partitions)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1 << 20),
    brokers=st.integers(6, 14),
    factor=st.sampled_from([2, 3]),
    racks=st.sampled_from([1, 2, 3, 4]),
    joined=st.integers(0, 3),
    mixed=st.booleans(),
)
def test_any_grown_cluster_is_even_with_few_bytes_and_no_broker_is_written_to_too_much(
    seed: int, brokers: int, factor: int, racks: int, joined: int, mixed: bool
) -> None:
    cluster = grown_model(
        seed, brokers=brokers, partitions=25 * brokers, factor=factor, racks=racks, joined=joined, mixed=mixed
    )
    assume(has_no_giant(cluster))
    plan = rebalance(cluster)
    check_plan(cluster, plan, Goals())
    assert plan == rebalance(cluster)
    assert fullest(plan.after) <= plan.floor.level * 1.10
    assert plan.bytes_copied <= 1.25 * least_bytes(plan) + 2 * max(each.size for each in cluster.partitions)
    state = Placement(cluster, Goals())
    written = zip(plan.before, plan.after, state.rate_limit, strict=True)
    assert all(after.rate_in <= max(before.rate_in, most) * 1.2 for before, after, most in written)
    optimum = leaders_at_least(cluster, plan) if find_spec("scipy") is not None else None
    # Of 11,400 drawn clusters 5 were above 1.3, and the worst was at 1.42.
    assert optimum is None or max(load.leader_weight for load in plan.after) <= 1.5 * optimum


@pytest.mark.skipif(find_spec("scipy") is None, reason="pip install scipy, to compare leaders with the optimum")
@pytest.mark.parametrize("seed", range(8))
def test_leaders_are_within_a_tenth_of_the_optimum_for_the_same_replicas(seed: int) -> None:
    cluster = grown_model(seed, brokers=6 + 3 * seed, partitions=500, factor=2 + seed % 2, joined=seed % 3)
    plan = rebalance(cluster)
    optimum = leaders_at_least(cluster, plan)
    assert optimum is not None
    assert max(load.leader_weight for load in plan.after) <= 1.10 * optimum


@pytest.mark.skipif(find_spec("scipy") is None, reason="pip install scipy, to compare leaders with the optimum")
def test_a_heavy_partition_is_led_where_others_have_to_make_room_for_it() -> None:
    over = []
    for seed in range(60):
        cluster = grown_model(seed, brokers=6 + seed % 9, partitions=150 + 25 * (seed % 9), factor=2, joined=seed % 4)
        plan = rebalance(cluster)
        over.append(max(load.leader_weight for load in plan.after) / (leaders_at_least(cluster, plan) or 1.0))
    assert sum(each > 1.10 for each in over) <= 1, sorted(over)[-5:]
    assert max(over) <= 1.2


def test_brokers_that_join_are_filled_and_others_receive_nothing() -> None:
    cluster = grown_model(1, brokers=9, partitions=400, joined=3)
    plan = add_brokers(cluster, [10, 11, 12])
    received = {broker for move in plan.moves for broker in move.adding}
    assert received == {10, 11, 12}
    assert fullest(plan.after) <= plan.floor.level * 1.0501


def test_one_partition_that_dwarfs_a_broker_leaves_the_others_where_they_are() -> None:
    giant = partition("giant", 0, 100 << 30, [1])
    others = [partition("t", number, 1 << 30, [1 + number % 4]) for number in range(20)]
    plan = rebalance(model([broker(number) for number in (1, 2, 3, 4)], [giant, *others]))
    assert "giant-0 alone is that large" in plan.floor.why
    assert plan.bytes_copied <= 5 << 30, "only what stands beside the giant may be worth a move"
    assert all(move.topic != "giant" for move in plan.moves)


def test_two_full_disks_change_nothing_because_no_copy_has_room_beside_the_old_one() -> None:
    full = [broker(number, disks=[100]) for number in (1, 2)]
    cluster = model(full, [partition("t", 0, 80, [1]), partition("t", 1, 70, [2])])
    plan = remove_brokers(model([*full, broker(3, disks=[100])], cluster.partitions), [1])
    assert [(move.old, move.new) for move in plan.moves] == [((1,), (3,))]
    with pytest.raises(InputError, match=r"t-0: found no broker that can take its replica of broker 1 \(80 bytes\)"):
        remove_brokers(cluster, [1])


def test_a_replica_on_a_broker_that_is_gone_goes_to_one_that_is_there() -> None:
    gone = [broker(1), broker(2)]
    lost = model([*gone, broker(9)], [partition("t", 0, 10, [9])])
    lost = model([*gone, lost.by_id[9].__class__(id=9, weight=0.0, is_registered=False)], lost.partitions)
    (move,) = rebalance(lost).moves
    assert move.new == (1,)
    assert move.why == "broker 9 is not in the cluster"


def test_replicas_in_one_rack_are_spread_over_racks_first() -> None:
    cluster = model([broker(1, rack="a"), broker(2, rack="a"), broker(3, rack="b")], [partition("t", 0, 10, [1, 2])])
    (move,) = rebalance(cluster).moves
    assert 3 in move.new
    assert move.why == "its replicas were in one rack"


def test_what_uneven_racks_allow_is_computed_before_anything_is_searched() -> None:
    racks = [broker(number, rack="abc"[number % 3]) for number in range(1, 11)]
    everywhere = [
        partition("t", number, 1 << 20, [1 + number % 9, 1 + (number + 1) % 9, 1 + (number + 2) % 9])
        for number in range(90)
    ]
    plan = rebalance(model(racks, everywhere))
    assert plan.floor.level == pytest.approx(10 / 9)
    assert plan.notes[0].startswith("1.11 × the mean is the best that can be reached: rack")


def test_two_replicas_are_given_for_one_where_no_exchange_of_two_is_enough() -> None:
    """What is left is one broker with two too many of a kind, and one with one too many of a larger kind."""
    mib = 1 << 20
    both = [partition("both", number, 96 * mib // 10, [1, 2]) for number in range(6)]
    one = [partition("one", number, 134 * mib // 10, [1]) for number in range(3)]
    cluster = model([broker(number) for number in (1, 2, 3)], [*both, *one])
    plan = rebalance(cluster)
    check_plan(cluster, plan, Goals())
    assert fullest(plan.before) > 1.8
    assert fullest(plan.after) == pytest.approx(1.0, abs=1e-4)
    assert not any("wanted at most" in note for note in plan.notes)


@given(models())
def test_a_plan_that_stays_above_what_was_wanted_says_so(cluster: Model) -> None:
    plan = rebalance(cluster, goals=GOALS)
    is_above = fullest(plan.after) > plan.floor.level * 1.05 * (1 + 1e-5)
    is_told = plan.left_out or any("wanted at most" in note for note in plan.notes)
    assert not is_above or is_told
    assert is_above or not any("wanted at most" in note for note in plan.notes)


def test_where_nothing_better_was_found_the_plan_names_the_broker() -> None:
    sizes = [71, 70, 69, 20, 3]
    tight = model([broker(1), broker(2), broker(3)], [partition("t", at, size, [1]) for at, size in enumerate(sizes)])
    short = rebalance(tight)
    worst = max(short.after, key=lambda load: load.level or 0)
    assert (worst.level or 0) > short.floor.level * 1.05
    assert short.notes[-1].startswith(f"broker {worst.id} keeps {worst.level:.2f} × its fair share, wanted at most")


def test_a_deadline_returns_what_was_found_so_far_and_says_so() -> None:
    cluster = grown_model(2, brokers=9, partitions=300, joined=3)
    left = iter([False] * 3 + [True] * 10_000)
    plan = rebalance(cluster, expired=lambda: next(left))
    assert plan.is_cut_short
    assert plan.notes[-1] == "the search reached its time limit: this is the best plan found"
    check_plan(cluster, plan, Goals())
    assert 1 < fullest(plan.after) <= fullest(plan.before)


def test_measured_writes_decide_where_a_leader_is_and_sizes_where_none_were_measured() -> None:
    brokers = [broker(1), broker(2)]
    busy = [partition("busy", number, 1, [1, 2], rate=100.0) for number in range(4)]
    idle = [partition("idle", number, 1000, [2, 1], rate=1.0) for number in range(4)]
    by_rate = balance_leaders(model(brokers, [*busy, *idle], rates=True))
    assert leader_skew(by_rate.before) > 1.9
    assert leader_skew(by_rate.after) < 1.05
    assert {move.topic for move in by_rate.moves} == {"busy"}
    by_size = balance_leaders(model(brokers, [*busy, *idle]))
    assert {move.topic for move in by_size.moves} == {"idle"}
    assert "write rates were not measured" in by_size.notes[0]


TB = 10**12


def jbod(broker_id: int, *, disks: int = 4, held: int = 40, each_bytes: int = TB // 100, noise: int = 0) -> BrokerInfo:
    """A broker with equal disks that hold equal parts; `noise` is how many bytes less are free on each than on the one
    before."""
    log_dirs = []
    for disk in range(disks):
        replicas = tuple(
            ReplicaInfo(topic=f"t{broker_id}", partition=disk * held + at, bytes=each_bytes, offset_lag=0)
            for at in range(held)
        )
        free = TB - held * each_bytes - TB // 50 - noise * disk
        log_dirs.append(LogDirInfo(path=f"/d{disk}", total_bytes=TB, usable_bytes=free, replicas=replicas))
    return BrokerInfo(id=broker_id, host="b", port=9092, log_dirs=tuple(log_dirs))


def facts_of_brokers(*brokers: BrokerInfo) -> ClusterFacts:
    """Every replica is a partition of its own."""
    topics = []
    for each in brokers:
        partitions = tuple(
            PartitionInfo(
                partition=replica.partition, leader=each.id, leader_epoch=1, replicas=(each.id,), in_sync=(each.id,)
            )
            for log_dir in each.log_dirs or ()
            for replica in log_dir.replicas
        )
        if partitions:
            topics.append(TopicInfo(name=f"t{each.id}", topic_id=None, is_internal=False, partitions=partitions))
    return ClusterFacts(at_ms=0, cluster_id="c", controller_id=1, parts=(), brokers=brokers, topics=tuple(topics))


@pytest.mark.parametrize("dirs_are_disks", [False, True])
@pytest.mark.parametrize("noise", [0, 4_096, 777 * 1024])
def test_a_new_broker_with_equal_disks_gets_its_whole_share(dirs_are_disks: bool, noise: int) -> None:
    """Three brokers of four disks with 40 replicas each, and an empty one: a quarter of 480 is 120."""
    facts = facts_of_brokers(*(jbod(number, noise=noise) for number in (1, 2, 3)), jbod(4, held=0, noise=noise))
    cluster = model_of(facts, dirs_are_disks=dirs_are_disks)
    assert [len(each.disks) for each in cluster.brokers] == [4, 4, 4, 4]
    plan = add_brokers(cluster, [4])
    arriving = [move.log_dirs for move in plan.moves if move.adding == (4,)]
    assert 100 <= len(arriving) <= 125, "the others may stay 5 % above it"
    assert plan.floor.level == pytest.approx(1.0, abs=0.01)
    assert fullest(plan.after) < 1.06
    per_disk = Counter(arriving)
    assert max(per_disk.values()) - min(per_disk.values()) <= 1


def test_a_few_kilobytes_of_free_bytes_do_not_change_a_plan() -> None:
    def planned(noise: int) -> object:
        brokers = [jbod(1, noise=noise), jbod(2, held=20, noise=noise), jbod(3, held=3, noise=noise)]
        return rebalance(model_of(facts_of_brokers(*brokers, jbod(4, held=0, noise=noise)))).moves

    assert planned(0) == planned(1) == planned(4_096) == planned(5_000_000)


def shared(*held: int, noise: int = 0, foreign: int = TB // 50, total: int = TB) -> BrokerInfo:
    """A broker whose directories are on one disk, and hold so many bytes."""
    log_dirs = tuple(
        LogDirInfo(
            path=f"/d{at}",
            total_bytes=total,
            usable_bytes=total - sum(held) - foreign - noise * at,
            replicas=(ReplicaInfo(topic="t", partition=at, bytes=each, offset_lag=0),),
        )
        for at, each in enumerate(held)
    )
    return BrokerInfo(id=1, host="b", port=9092, log_dirs=log_dirs)


@pytest.mark.parametrize("noise", [0, 4_096, 50_000_000])
@pytest.mark.parametrize("held", [(TB // 4, TB // 10), (TB // 5, TB // 5), (TB // 8, TB // 8, TB // 8), (0, TB // 100)])
def test_directories_that_share_a_disk_are_one(held: tuple[int, ...], noise: int) -> None:
    (one,) = model_of(facts_of_brokers(shared(*held, noise=noise))).brokers
    (disk,) = one.disks
    assert disk.paths == tuple(f"/d{at}" for at in range(len(held)))
    assert disk.room == pytest.approx(int(TB * 0.85) - TB // 50, abs=noise * len(held))
    told = model_of(facts_of_brokers(shared(*held, noise=noise)), dirs_are_disks=True).brokers[0]
    assert len(told.disks) == len(held), "unless somebody knows better"


def test_two_disks_that_two_directories_share_each_are_two() -> None:
    one, other = shared(TB // 4, TB // 10), shared(TB // 5, TB // 7)
    log_dirs = tuple(replace(each, path=f"/other{each.path}") for each in other.log_dirs or ())
    facts = facts_of_brokers(replace(one, log_dirs=(*(one.log_dirs or ()), *log_dirs)))
    assert [each.paths for each in model_of(facts).brokers[0].disks] == [("/d0", "/d1"), ("/other/d0", "/other/d1")]


@pytest.mark.parametrize("written", [{}, {"orders": 0.0}])
def test_where_nothing_was_written_while_it_was_measured_leaders_are_spread_by_size(written: dict[str, float]) -> None:
    facts = facts_of(model([broker(1), broker(2)], [partition("orders", at, 1000, [1, 2]) for at in range(4)]))
    rates = Rates(seconds=10.0, bytes_in={place: written[place.topic] for place in facts.by_partition if written})
    plan = balance_leaders(model_of(facts, rates=rates))
    assert (plan.weighed_by, leader_skew(plan.before), leader_skew(plan.after)) == ("size", 2.0, 1.0)
    assert "or nothing was written" in plan.notes[0]
