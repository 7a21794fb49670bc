"""What a tail reads in a round: all of it where that is little, else a sample of whole partitions in turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.sampling import sample
from ottla.records import TopicPartition

Spans = dict[TopicPartition, tuple[int, int]]


def place(number: int) -> TopicPartition:
    return TopicPartition("fast", number)


def sampled(grown: list[int], most: int, turn: int = 0) -> tuple[dict[int, tuple[int, int]], int]:
    """What is read of partitions that grew by so many records from offset 100 on, by number of the partition."""
    positions = {place(number): 100 for number in range(len(grown))}
    ends = {place(number): 100 + each for number, each in enumerate(grown)}
    spans, skipped = sample(positions, ends, most, turn=turn)
    return {each.partition: span for each, span in spans.items()}, skipped


def test_little_is_read_whole() -> None:
    assert sampled([3, 0, 40], 50) == ({0: (100, 103), 2: (100, 140)}, 0)


def test_of_fast_partitions_one_is_read_each_turn_from_where_a_batch_begins() -> None:
    grown = [100_000] * 4
    read = [sampled(grown, 50, turn) for turn in range(8)]
    assert [list(spans) for spans, _ in read] == [[each] for each in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert all(span == (100, 150) for spans, _ in read for span in spans.values())
    assert {skipped for _, skipped in read} == {400_000 - 50}


def test_a_slow_partition_is_read_whole_beside_fast_ones() -> None:
    spans, skipped = sampled([100_000, 2, 100_000], 50, turn=1)
    assert spans == {1: (100, 102), 2: (100, 148)}
    assert skipped == 200_002 - 50


def test_what_one_fast_partition_leaves_the_next_one_gets() -> None:
    assert sampled([30, 30, 30], 50)[0] == {0: (100, 130), 1: (100, 120)}


def test_nothing_is_read_when_all_of_a_second_is_shown() -> None:
    assert sampled([100_000, 1], 0) == ({}, 100_001)


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(-1, 400), st.integers(0, 100))
def test_never_more_than_may_be_read_and_each_record_is_read_or_counted(grown: list[int], most: int, turn: int) -> None:
    spans, skipped = sampled(grown, most, turn)
    read = sum(end - start for start, end in spans.values())
    assert read == min(sum(grown), max(0, most))
    assert read + skipped == sum(grown)
    for number, (start, end) in spans.items():
        assert 100 == start < end <= 100 + grown[number]
