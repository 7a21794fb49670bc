"""Plans as files, ours and anybody's: read back as written, refused where they are wrong, judged by the cluster."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_models import broker, check_plan, model, models, partition

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.move_schedule import MovePace
from ottla.admin.placement.placement_state import Goals
from ottla.admin.placement.plan_file import dump_plan, dump_rollback, load_plan, moves_of
from ottla.admin.placement.plan_judgement import judge
from ottla.admin.placement.planners import rebalance, remove_brokers, spread_dirs
from ottla.errors import InputError

GOALS = Goals(pace=MovePace(per_broker=2, per_disk=1, bytes=200, small=20))


@given(models(), st.booleans())
def test_a_plan_is_read_back_as_it_was_written_and_has_no_problems(cluster: Model, disks_only: bool) -> None:
    plan = spread_dirs(cluster, goals=GOALS) if disks_only else rebalance(cluster, goals=GOALS)
    file = load_plan(dump_plan(plan))
    found = {move.place: move for move in moves_of(file, cluster)}
    assert set(found) == {move.place for move in plan.moves}
    for move in plan.moves:
        assert (found[move.place].new, found[move.place].disk_moves) == (move.new, move.disk_moves)
    judged = judge(file, cluster, goals=GOALS)
    assert judged.problems == ()
    assert judged.plan.after == plan.after
    assert judged.plan.bytes_copied == plan.bytes_copied


@given(models())
def test_a_rollback_leads_back(cluster: Model) -> None:
    plan = rebalance(cluster, goals=GOALS)
    back = {entry.place: entry.replicas for entry in load_plan(dump_rollback(plan.moves)).entries}
    assert back == {move.place: move.old for move in plan.moves}


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.sampled_from(["topic", "partition", "replicas", "ottla"]), each),
)


@given(st.binary(max_size=200) | ANYTHING.map(lambda each: json.dumps({"version": 1, "partitions": each}).encode()))
def test_a_file_that_is_none_is_refused_with_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(InputError):
        load_plan(data, source="some.json")


def plan_text(*partitions: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"version": 1, "partitions": list(partitions), **rest}).encode()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"replicas": []}, r"partitions\[0\] \(t-0\): found no replicas, wanted at least one broker"),
        ({"replicas": [1, 1]}, r"found replicas \[1, 1\], wanted each broker once"),
        ({"replicas": [1, 2], "log_dirs": ["any"]}, "found 1 log_dirs for 2 replicas, wanted one for each"),
        ({"replicas": ["1"]}, r"Expected `int`, got `str` - at `\$.partitions\[0\].replicas\[0\]`"),
        ({"replicas": [-1]}, r"at `\$.partitions\[0\].replicas\[0\]`"),
    ],
)
def test_a_wrong_line_is_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_plan(plan_text({"topic": "t", "partition": 0, **entry}))


def test_a_partition_that_stands_twice_is_refused() -> None:
    line = {"topic": "t", "partition": 0, "replicas": [1]}
    with pytest.raises(InputError, match=r"partitions\[1\]: found t-0 a second time"):
        load_plan(plan_text(line, line))


def test_another_version_is_refused() -> None:
    with pytest.raises(InputError, match="found version 2, wanted 1"):
        load_plan(b'{"version": 2, "partitions": []}')


def test_a_plan_by_hand_is_judged_by_what_it_would_do() -> None:
    cluster = model(
        [broker(number, rack="ab"[number % 2]) for number in (1, 2, 3, 4)],
        [partition("t", number, 10, [1 + number, 1 + (number + 1) % 4]) for number in range(4)],
    )
    by_hand = load_plan(
        plan_text(
            {"topic": "t", "partition": 0, "replicas": [1, 3]},
            {"topic": "t", "partition": 1, "replicas": [1]},
            {"topic": "t", "partition": 2, "replicas": [1, 9]},
            {"topic": "t", "partition": 3, "replicas": [1, 4]},
            ottla={"cluster_id": "another"},
        )
    )
    judged = judge(by_hand, cluster)
    assert judged.problems == (
        "it is for the cluster another, this one is c",
        "t-0: replicas in 1 racks where there are 2",
        "t-1: 1 replicas where there are 2",
        "t-2: broker 9 is not in the cluster",
    )
    assert "broker 1 leads 75% by size afterwards" in " ".join(judged.warnings)
    assert judged.plan.bytes_copied == 20, "what cannot be made copies nothing"


def test_what_the_cluster_does_not_have_is_named() -> None:
    cluster = model([broker(1), broker(2)], [partition("t", 0, 10, [1])])
    with pytest.raises(InputError, match="u-0: the cluster has no such partition"):
        judge(load_plan(plan_text({"topic": "u", "partition": 0, "replicas": [1]})), cluster)
    line = {"topic": "t", "partition": 0, "replicas": [2], "log_dirs": ["/x"]}
    with pytest.raises(InputError, match=r"found log directory '/x' for broker 2, wanted one of /d0"):
        judge(load_plan(plan_text(line)), cluster)


@pytest.mark.parametrize(("size", "at_once"), [(16 << 20, range(50, 81)), (4 << 20, range(200, 321)), (1, [800])])
def test_small_partitions_move_many_at_a_time_where_one_large_one_would(size: int, at_once: Collection[int]) -> None:
    brokers = [broker(number) for number in (1, 2)]
    small = [partition("small", number, size, [1]) for number in range(800)]
    large = [partition("large", number, 1 << 30, [1]) for number in range(10)]
    plan = remove_brokers(model([*brokers, broker(3)], [*small, *large]), [1])
    batches = Counter((move.batch, move.topic) for move in plan.moves)
    assert max(count for (_, topic), count in batches.items() if topic == "large") <= 4, "two to each disk"
    assert max(count for (_, topic), count in batches.items() if topic == "small") in at_once
    check_plan(model([*brokers, broker(3)], [*small, *large]), plan, Goals(), removed=[1])
