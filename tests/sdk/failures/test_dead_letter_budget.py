"""The budget: an outage fills the dead letter topic up to a bound, and no further."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError
from ottla.failures import BudgetMeter, DeadLetterBudget


def test_when_everything_fails_the_circuit_opens_after_the_burst() -> None:
    meter = BudgetMeter(DeadLetterBudget(burst=3, every_s=10), now_ms=0)

    assert [meter.take(1) for _ in range(4)] == [None, None, None, 10_000]


def test_a_free_token_comes_with_each_interval() -> None:
    meter = BudgetMeter(DeadLetterBudget(burst=1, every_s=10), now_ms=0)
    assert meter.take(0) is None

    assert meter.take(9_999) == 10_000
    assert meter.take(10_000) is None
    assert meter.take(10_001) == 20_000


def test_successes_earn_their_share() -> None:
    meter = BudgetMeter(DeadLetterBudget(burst=2, per_success=0.5, every_s=1_000), now_ms=0)
    meter.take(0)
    meter.take(0)

    meter.succeeded(1)
    assert meter.take(0) is not None
    meter.succeeded(1)
    assert meter.take(0) is None


@given(
    burst=st.integers(1, 50),
    per_success=st.floats(0, 1),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 20), st.integers(0, 20)), max_size=60),
)
def test_never_more_than_burst_plus_share_plus_time(
    burst: int, per_success: float, steps: list[tuple[int, int, int]]
) -> None:
    meter = BudgetMeter(DeadLetterBudget(burst=burst, per_success=per_success, every_s=1), now_ms=0)
    now_ms = written = succeeded = 0

    for passed_ms, good, bad in steps:
        now_ms += passed_ms
        meter.succeeded(good)
        succeeded += good
        written += sum(meter.take(now_ms) is None for _ in range(bad))
        assert written <= burst + succeeded * per_success + now_ms // 1_000 + 1e-6


@pytest.mark.parametrize(
    ("values", "named"), [({"burst": 0}, "burst"), ({"per_success": -1}, "per_success"), ({"every_s": 0}, "every_s")]
)
def test_a_budget_that_makes_no_sense_is_refused_by_name(values: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DeadLetterBudget(**values)  # type: ignore[arg-type]
