"""How old a record is, by where the log ended when."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.admin.facts.cluster_facts import ClusterFacts, PartitionInfo, TopicInfo
from ottla.exporter.offset_history import MOST_AGE_MS, MOST_ANSWERS, OffsetHistory
from ottla.topics import TopicPartition

PLACE = TopicPartition("orders", 0)
MINUTE_MS = 60_000


def facts(at_ms: int, *ends: int | None, topic_id: str = "a", topic: str = "orders") -> ClusterFacts:
    partitions = tuple(
        PartitionInfo(partition=at, leader=1, leader_epoch=1, replicas=(1,), in_sync=(1,), high_watermark=end)
        for at, end in enumerate(ends)
    )
    topics = (TopicInfo(name=topic, topic_id=topic_id, is_internal=False, partitions=partitions),)
    return ClusterFacts(at_ms=at_ms, cluster_id="c", controller_id=1, parts=(), brokers=(), topics=topics)


def written_ms(history: OffsetHistory, offset: int) -> int | None:
    found = history.written_at(PLACE, offset)
    return None if found is None else found.at_ms


def test_a_record_between_two_samples_was_written_between_them() -> None:
    history = OffsetHistory()
    for at_ms, end in ((1_000, 100), (2_000, 200), (3_000, 200), (4_000, 300)):
        history.take(facts(at_ms, end))
    assert written_ms(history, 100) == 1_000
    assert written_ms(history, 150) == 1_500
    assert written_ms(history, 200) == 3_000, "nothing was written for a second before it"
    assert written_ms(history, 299) == 3_990
    assert history.written_at(PLACE, 300) is None, "it is not written yet"
    assert history.written_at(TopicPartition("other", 0), 1) is None


def test_a_record_older_than_all_samples_is_at_least_as_old_as_they() -> None:
    history = OffsetHistory()
    history.take(facts(1_000, 100))
    history.take(facts(5_000, 200))
    found = history.written_at(PLACE, 99)
    assert found is not None
    assert (found.at_ms, found.is_precise) == (1_000, False)


def test_an_end_that_was_not_read_stays_and_its_growth_is_counted_later() -> None:
    history = OffsetHistory()
    history.take(facts(1_000, 100))
    assert history.take(facts(2_000, None)).written == {}
    assert history.take(facts(3_000, 150)).written == {"orders": 50}
    assert written_ms(history, 100) == 2_000


def test_an_end_that_goes_back_is_a_truncation_and_the_past_is_forgotten() -> None:
    history = OffsetHistory()
    history.take(facts(1_000, 100, 10))
    history.take(facts(2_000, 200, 20))
    changes = history.take(facts(3_000, 150, 30))
    assert (changes.truncated, changes.written) == ({"orders": 50}, {"orders": 10})
    found = history.written_at(PLACE, 120)
    assert found is not None
    assert (found.at_ms, found.is_precise) == (3_000, False)
    assert written_ms(history, 0) == 3_000


def test_a_topic_that_was_created_again_is_neither_truncated_nor_written() -> None:
    history = OffsetHistory()
    history.take(facts(1_000, 100))
    changes = history.take(facts(2_000, 7, topic_id="b"))
    assert (changes.truncated, changes.written) == ({}, {})
    assert history.take(facts(3_000, 9, topic_id="b")).written == {"orders": 2}


def test_a_clock_that_was_set_back_ends_the_history() -> None:
    history = OffsetHistory()
    history.take(facts(5_000, 100))
    history.take(facts(4_000, 200))
    history.take(facts(6_000, 300))
    found = history.written_at(PLACE, 150)
    assert found is not None
    assert (found.at_ms, found.is_precise) == (4_000, False)


def test_the_history_of_a_week_is_bounded_and_the_past_is_as_exact_as_it_is_old() -> None:
    history = OffsetHistory()
    every_ms = 30_000
    count = 8 * 86_400_000 // every_ms
    for number in range(count):
        history.take(facts(number * every_ms, number))
    assert len(history._samples) <= 64
    now_ms = (count - 1) * every_ms
    for ago in (1, 10, 100, 1_000, 10_000, count - 2):
        found = written_ms(history, count - 1 - ago)
        assert found is not None
        assert abs((now_ms - found) - ago * every_ms) <= every_ms + 0.15 * ago * every_ms


def test_samples_that_are_too_old_are_dropped() -> None:
    history = OffsetHistory()
    for number in range(4):
        history.take(facts(number * MOST_AGE_MS, number))
    assert len(history._samples) == 2


def test_slots_of_deleted_topics_are_used_again() -> None:
    history = OffsetHistory()
    for number in range(4_000):
        history.take(facts(number * 1_000, number, topic=f"orders-{number}" if number % 2 else "orders"))
    assert history._taken <= 1_010
    history.take(facts(4_000_000, 5_000))
    history.take(facts(4_001_000, 5_100))
    assert written_ms(history, 5_050) == 4_000_500


def answered(history: OffsetHistory, offset: int, written: dict[int, int]) -> int:
    """Ask and answer until nothing is asked; returns how often. `written`: offset → when it was written."""
    for times in range(100):
        moment = history.moment_to_ask(PLACE, offset)
        if moment is None:
            return times
        first = next((each for each, at_ms in sorted(written.items()) if at_ms >= moment), -1)
        history.take_answer(PLACE, moment, first)
    raise AssertionError("it asks for ever")


@example(2, 1)
@given(st.integers(1, 90 * 86_400_000), st.integers(1, 5_000))
def test_the_age_of_an_old_record_is_found_by_a_few_questions(age_ms: int, rate_ms: int) -> None:
    now_ms = 100 * 86_400_000
    written = {number: now_ms - age_ms + (number - 500) * rate_ms for number in range(1_000)}
    written = {number: min(at_ms, now_ms - 1) for number, at_ms in written.items()}
    history = OffsetHistory()
    history.take(facts(now_ms, 1_000))
    times = answered(history, 500, written)
    assert times <= 20
    found = history.written_at(PLACE, 500)
    assert found is not None
    assert found.is_precise
    error_ms = abs(found.at_ms - written[500])
    assert error_ms <= 0.11 * age_ms + 1_000


def test_records_without_timestamps_are_asked_about_only_so_often() -> None:
    history = OffsetHistory()
    history.take(facts(10**12, 1_000))
    assert answered(history, 500, {}) <= MOST_ANSWERS


def test_answers_are_kept_while_a_group_needs_them() -> None:
    now_ms = 10**12
    history = OffsetHistory()
    history.take(facts(now_ms, 1_000))
    written = {number: now_ms - (1_000 - number) * MINUTE_MS for number in range(1_000)}
    answered(history, 500, written)
    history.forget_answers({PLACE: 500})
    assert history.moment_to_ask(PLACE, 500) is None, "nothing is asked twice"
    history.forget_answers({})
    assert history.moment_to_ask(PLACE, 500) is not None
