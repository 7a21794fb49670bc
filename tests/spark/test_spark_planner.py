"""Who reads what, and how a budget is shared: pure functions, tested by property."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar import OffsetRange
from ottla.records import TopicPartition
from ottla.spark.planner import Fairness, TaskSizing, divide, share_budget, share_bytes

sizes = st.lists(st.integers(0, 2_000_000), min_size=1, max_size=30)


def ranges_of(counts):
    return [OffsetRange(topic="orders", partition=p, start=100 * p, end=100 * p + n) for p, n in enumerate(counts)]


def plan_tasks(ranges, **options):
    return divide(ranges, TaskSizing(**options).count(sum(r.size for r in ranges)))


@given(
    counts=sizes,
    parallelism=st.integers(1, 40),
    rows_per_task=st.integers(1, 100_000),
    min_tasks=st.integers(1, 60),
    max_rows=st.none() | st.integers(10_000, 1_000_000),
)
def test_tasks_cover_every_offset_once_and_evenly(counts, parallelism, rows_per_task, min_tasks, max_rows):
    total = sum(counts)
    tasks = plan_tasks(
        ranges_of(counts),
        parallelism=parallelism,
        rows_per_task=rows_per_task,
        min_tasks=min_tasks,
        max_rows_per_task=max_rows,
    )
    by_partition = {}
    for task in tasks:
        assert len({r.partition for r in task}) == len(task)
        for r in task:
            by_partition.setdefault(r.partition, []).append((r.start, r.end))
    for wanted in ranges_of(counts):
        position = wanted.start
        for start, end in sorted(by_partition.get(wanted.partition, [])):
            assert start == position < end
            position = end
        assert position == wanted.end
    rows = [sum(r.size for r in task) for task in tasks]
    assert sum(rows) == total
    assert not rows or max(rows) - min(rows) <= 1
    assert max_rows is None or all(count <= max_rows for count in rows)
    if total:
        assert min(min_tasks, total) <= len(tasks)


def test_many_small_ranges_become_few_tasks():
    assert len(plan_tasks(ranges_of([500] * 48), parallelism=2)) == 1
    assert len(plan_tasks(ranges_of([5_000] * 48), parallelism=2)) == 2


def test_one_big_range_is_split_over_the_cores():
    tasks = plan_tasks(ranges_of([1_000_000]), parallelism=4)
    assert [[(r.start, r.end) for r in task] for task in tasks] == [
        [(0, 250_000)], [(250_000, 500_000)], [(500_000, 750_000)], [(750_000, 1_000_000)],
    ]  # fmt: skip


def test_nothing_to_read_needs_no_task():
    assert plan_tasks(ranges_of([0, 0]), parallelism=4, min_tasks=3) == []


@given(sizes, st.integers(1, 3_000_000), st.sampled_from(Fairness))
def test_a_budget_is_used_up_and_never_exceeded(counts, budget, fairness):
    available = {TopicPartition("orders", p): n for p, n in enumerate(counts)}
    shares = share_budget(available, budget=budget, fairness=fairness)
    assert shares.keys() == available.keys()
    assert sum(shares.values()) == min(budget, sum(counts))
    assert all(0 <= shares[p] <= available[p] for p in available)


@given(sizes, st.integers(1, 3_000_000), st.integers(0, 100))
def test_whoever_gets_less_than_another_got_all_it_had(counts, budget, turn):
    """Max-min fairness, with one record of rounding."""
    available = {TopicPartition("orders", p): n for p, n in enumerate(counts)}
    shares = share_budget(available, budget=budget, turn=turn)
    largest = max(shares.values())
    assert all(shares[p] == available[p] or shares[p] >= largest - 1 for p in available)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 5))
def test_with_a_budget_of_fewer_records_than_partitions_each_has_its_turn(counts, budget, first_turn):
    """Also where records come as fast as they are read: what is available stays as it is."""
    available = {TopicPartition("orders", p): n for p, n in enumerate(counts)}
    read = dict.fromkeys(available, 0)
    for turn in range(first_turn, first_turn + len(counts)):
        shares = share_budget(available, budget=budget, turn=turn)
        assert sum(shares.values()) == min(budget, sum(counts))
        read = {p: read[p] + shares[p] for p in available}
    assert all(read.values())


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(1, 5_000)), min_size=1, max_size=8),
    st.integers(1, 50_000),
    st.sampled_from(Fairness),
    st.integers(0, 20),
)
def test_a_budget_of_bytes_is_kept_but_for_one_record_and_everything_is_read_in_the_end(each, budget, fairness, turn):
    available = {TopicPartition("orders", p): count for p, (count, _) in enumerate(each)}
    size = {TopicPartition("orders", p): size for p, (_, size) in enumerate(each)}
    rounding = len(each)
    while any(available.values()):
        shares = share_bytes(available, budget_bytes=budget, bytes_per_offset=size, fairness=fairness, turn=turn)
        assert all(0 <= shares[p] <= available[p] for p in available)
        assert sum(shares[p] * size[p] for p in shares) <= budget + max(size.values()) + rounding
        assert any(shares.values())
        available = {p: available[p] - shares[p] for p in available}
        turn += 1


def test_a_record_larger_than_its_share_is_read_beside_a_topic_of_small_ones():
    small, large = TopicPartition("small", 0), TopicPartition("large", 0)
    size = {small: 100.0, large: 10_000_000.0}
    shares = share_bytes({small: 10_000, large: 5}, budget_bytes=5_000_000, bytes_per_offset=size)
    assert shares == {small: 10_000, large: 1}


def test_a_partition_far_behind_does_not_starve_the_others():
    behind, *small = [TopicPartition("orders", p) for p in range(10)]
    shares = share_budget({behind: 10_000_000} | dict.fromkeys(small, 1_000), budget=100_000)
    assert shares == {behind: 91_000} | dict.fromkeys(small, 1_000)


def test_proportional_budgets_follow_the_lag_as_in_sparks_connector():
    a, b = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert share_budget({a: 900, b: 100}, budget=100, fairness=Fairness.PROPORTIONAL) == {a: 90, b: 10}
