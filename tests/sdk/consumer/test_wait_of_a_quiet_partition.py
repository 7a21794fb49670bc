"""How long a record of a quiet partition waits beside hot ones: what docs/how-to/ordering.md promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from session_driver import assigned

from ottla.consumer.model import events
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.plan import DEFAULT_TURN_MS
from ottla.records import TopicPartition

QUIET = TopicPartition("orders", 99)
RECORDS = 4_500


@given(
    hot=st.integers(1, 3),
    record_us=st.sampled_from([0, 1, 10, 100, 500, 1_000, 7_000, 60_000, 200_000]),
    sends=st.booleans(),
    turns=st.integers(2, 6),
)
def test_it_waits_for_one_turn_of_each_hot_partition_at_most(hot: int, record_us: int, sends: bool, turns: int) -> None:
    places = [TopicPartition("orders", number) for number in range(hot)]
    driver = assigned(*places, QUIET, flow=FlowLimits(high_records=RECORDS + 1))
    for place in places:
        driver.fetch(place, *range(RECORDS))

    def work_off_one_run() -> int:
        """Have the one worker handle its run. Returns how many milliseconds that takes."""
        run = driver.runs[0]
        took_ms = round(len(run.records) * record_us / 1_000)
        if sends:
            run.reached = len(run.records)
            driver.step(events.RunHandled(run), after_ms=took_ms)
            driver.finish(run)
        else:
            driver.now_ms += took_ms
            driver.finish(run)
        return took_ms

    for _ in range(turns):
        if driver.runs:  # else they had few records for so many turns
            work_off_one_run()
    driver.fetch(QUIET, 0)
    waited_ms = waited_turns = 0
    while driver.runs[0].topic_partition != QUIET:
        waited_ms += work_off_one_run()
        waited_turns += 1

    assert waited_turns <= hot + 1, "the run that a worker has, and a turn of each partition before it"
    assert waited_ms <= waited_turns * max(DEFAULT_TURN_MS, record_us / 1_000)
