"""The limit on what repeats: how many pass, that none is lost from the count, that memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.telemetry import RateLimit
from ottla.telemetry.logs.rate_limit import _MOST_KEYS


def test_a_burst_passes_and_the_next_interval_says_how_many_were_held_back() -> None:
    limit = RateLimit(every_ms=100, burst=2)

    assert [limit.admit("a", 0) for _ in range(5)] == [0, 0, None, None, None]
    assert limit.admit("b", 0) == 0
    assert [limit.admit("a", 100), limit.admit("a", 100)] == [3, 0]


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60))), burst=st.integers(1, 4))
def test_every_event_is_let_through_or_counted(steps: list[tuple[str, int]], burst: int) -> None:
    limit = RateLimit(every_ms=100, burst=burst)
    now_ms = 0
    passed: list[tuple[str, int]] = []
    told = 0
    for key, later_ms in steps:
        now_ms += later_ms
        held_back = limit.admit(key, now_ms)
        if held_back is not None:
            passed.append((key, now_ms))
            told += held_back
    end_ms = now_ms + 100
    told += sum(limit.admit(key, end_ms) or 0 for key in "abc")

    assert len(passed) + told == len(steps)
    for key, at_ms in passed:
        assert len([1 for other, ms in passed if other == key and at_ms <= ms < at_ms + 100]) <= 2 * burst


def test_memory_is_bounded_whatever_the_keys_are() -> None:
    limit = RateLimit(every_ms=100)
    for number in range(3 * _MOST_KEYS):
        limit.admit(str(number), 0)
        limit.admit(str(number), 0)

    assert len(limit._windows) <= _MOST_KEYS
    assert len(limit._held_back) <= _MOST_KEYS
