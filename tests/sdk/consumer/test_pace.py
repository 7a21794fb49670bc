"""How many records a turn has: time is bounded, and not records alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.scheduling.route import Pace

RUNS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 20_000)), max_size=20)


def paced(runs: list[tuple[int, int]], *, at_first: int | None = None) -> Pace:
    pace = Pace(at_first=at_first)
    for records, took_ms in runs:
        pace.learn(records=records, took_ms=took_ms)
    return pace


@given(runs=RUNS, allowance=st.integers(1, 1_000), turn_ms=st.integers(1, 1_000))
def test_a_turn_has_one_record_and_never_more_than_it_may(
    runs: list[tuple[int, int]], allowance: int, turn_ms: int
) -> None:
    assert 1 <= paced(runs).most(allowance=allowance, turn_ms=turn_ms) <= allowance


@given(runs=RUNS, last=st.tuples(st.integers(1, 500), st.integers(0, 20_000)), turn_ms=st.integers(1, 1_000))
def test_at_the_pace_of_the_last_run_the_next_is_not_too_long(
    runs: list[tuple[int, int]], last: tuple[int, int], turn_ms: int
) -> None:
    """Whatever was quick before."""
    records, took_ms = last
    most = paced([*runs, last]).most(allowance=500, turn_ms=turn_ms)

    assert most == 1 or most * took_ms <= turn_ms * records


@given(runs=RUNS)
def test_a_handler_that_is_quick_again_soon_has_whole_turns_again(runs: list[tuple[int, int]]) -> None:
    pace = paced(runs)
    for _ in range(40):
        pace.learn(records=pace.most(allowance=500, turn_ms=50), took_ms=0)

    assert pace.most(allowance=500, turn_ms=50) == 500


def test_what_is_not_known_yet_is_tried_with_fewer() -> None:
    assert paced([], at_first=128).most(allowance=500, turn_ms=50) == 128
    assert paced([], at_first=128).most(allowance=20, turn_ms=50) == 20
    assert paced([]).most(allowance=500, turn_ms=50) == 500
    assert paced([(128, 2)], at_first=128).most(allowance=500, turn_ms=50) == 500
    assert paced([(128, 640)], at_first=128).most(allowance=500, turn_ms=50) == 10
