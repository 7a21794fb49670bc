"""How a long stretch of time is divided: pure, without a loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.cluster.time.advance import LEAPS, NEAR_NS, REST_NS, SECOND_NS, WALK_NS, plan


def test_a_minute_is_walked_timer_by_timer():
    (only,) = plan(now_ns=5, target_ns=5 + WALK_NS)
    assert not only.is_leap
    assert only.until_ns == 5 + WALK_NS


def test_a_week_is_leapt_over_and_its_end_is_walked():
    week_ns = 7 * 86_400 * SECOND_NS
    stages = plan(now_ns=0, target_ns=week_ns)
    walked_ns, now_ns = 0, 0
    for stage in stages:
        walked_ns += 0 if stage.is_leap else stage.until_ns - now_ns
        now_ns = stage.until_ns
    assert now_ns == week_ns
    assert walked_ns == NEAR_NS + (LEAPS - 1) * REST_NS


@given(now=st.integers(0, 10**18), length=st.integers(0, 10**18))
def test_a_plan_moves_forward_only_and_ends_at_its_target(now: int, length: int):
    stages = plan(now_ns=now, target_ns=now + length)
    moments = [now] + [stage.until_ns for stage in stages]
    assert moments == sorted(moments)
    assert moments[-1] == now + length
    assert not stages[-1].is_leap
