"""What the client gave is taken in slice by slice, by priority, and none of it is lost, doubled or overtaken."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.model.events import NOTHING_BEHIND
from ottla.consumer.scheduling.intake import SLICE_RECORDS, Intake
from ottla.records import TopicPartition

PRIORITY_OF = {"urgent": 0, "retried": 0, "orders": 1, "bulk": 2}
PLACES = [TopicPartition(topic, number) for topic in PRIORITY_OF for number in range(2)]

given_by_the_client = st.lists(
    st.lists(st.tuples(st.sampled_from(PLACES), st.integers(1, 2 * SLICE_RECORDS + 1)), max_size=4), max_size=6
)


def put(waiting: Intake, place: TopicPartition, messages: list[int], *, epoch: int = 1) -> None:
    waiting.put(place, messages, epoch=epoch, size_bytes=7 * len(messages))


@given(given_by_the_client)
def test_all_that_was_given_is_taken_in_in_its_order_and_a_round_has_one_slice_of_each_priority(
    rounds: list[list[tuple[TopicPartition, int]]],
) -> None:
    waiting = Intake(PRIORITY_OF)
    given: dict[TopicPartition, int] = defaultdict(int)
    taken: dict[TopicPartition, list[int]] = defaultdict(list)
    sizes: dict[TopicPartition, int] = defaultdict(int)
    while rounds or not waiting.is_empty:
        for place, count in rounds.pop(0) if rounds else ():
            put(waiting, place, list(range(given[place], given[place] + count)))
            given[place] += count
        slices = list(waiting.round())
        priorities = [PRIORITY_OF[each.topic_partition.topic] for each in slices]
        assert priorities == sorted(set(priorities))
        for each in slices:
            assert 0 < len(each.messages) <= SLICE_RECORDS
            taken[each.topic_partition] += each.messages
            left = given[each.topic_partition] - len(taken[each.topic_partition])
            assert each.behind.records == left
            assert abs(each.behind.size_bytes - 7 * left) <= 1
            sizes[each.topic_partition] += each.size_bytes
    assert sizes == {place: 7 * count for place, count in given.items()}
    assert taken == {place: list(range(count)) for place, count in given.items()}


def test_partitions_of_one_priority_take_turns() -> None:
    waiting = Intake(PRIORITY_OF)
    a, b = PLACES[-2:]
    put(waiting, a, list(range(3 * SLICE_RECORDS)))
    put(waiting, b, list(range(SLICE_RECORDS + 1)))
    assert [each.topic_partition for _ in range(5) for each in waiting.round()] == [a, b, a, b, a]


def test_without_priorities_a_round_takes_in_everything() -> None:
    waiting = Intake(None)
    put(waiting, PLACES[0], list(range(3 * SLICE_RECORDS)))
    put(waiting, PLACES[-1], [1])
    assert [(len(each.messages), each.behind) for each in waiting.round()] == [
        (3 * SLICE_RECORDS, NOTHING_BEHIND),
        (1, NOTHING_BEHIND),
    ]
    assert waiting.is_empty


def test_nothing_of_an_older_assignment_or_of_a_partition_that_is_gone_is_kept() -> None:
    waiting = Intake(PRIORITY_OF)
    a, b = PLACES[-2:]
    for place in (a, b):
        put(waiting, place, list(range(2 * SLICE_RECORDS)))
    put(waiting, a, [5], epoch=2)
    waiting.forget(b)
    ((each),) = waiting.round()
    assert (each.topic_partition, each.epoch, list(each.messages)) == (a, 2, [5])
    assert waiting.is_empty


def test_more_is_asked_for_while_what_waits_fits_into_the_free_room() -> None:
    waiting = Intake(PRIORITY_OF)
    urgent, bulk = PLACES[0], PLACES[-1]
    assert waiting.has_room(-1)  # else nothing would ever be fetched again
    put(waiting, bulk, list(range(2 * SLICE_RECORDS)))
    put(waiting, urgent, list(range(10)))
    size = 7 * (2 * SLICE_RECORDS + 10)
    assert waiting.has_room(size + 1)
    assert not waiting.has_room(size)

    put(waiting, urgent, list(range(5)), epoch=2)  # replaces those of the assignment before
    assert waiting.has_room(size - 34)
    assert not waiting.has_room(size - 35)
    list(waiting.round())
    assert waiting.has_room(7 * SLICE_RECORDS + 1)
    assert not waiting.has_room(7 * SLICE_RECORDS)
    waiting.forget(bulk)
    assert waiting.is_empty
    assert waiting.has_room(1)
