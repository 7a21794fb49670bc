"""A seed always means the same faults, and every run sees every kind."""

from __future__ import annotations

from soak.plan import BROKER, ROLLING, STEADY, draw


def test_a_seed_draws_the_same_faults_again_and_another_seed_draws_others() -> None:
    assert draw(seed=5, seconds=600, every_s=12) == draw(seed=5, seconds=600, every_s=12)
    assert draw(seed=5, seconds=600, every_s=12) != draw(seed=6, seconds=600, every_s=12)


def test_every_kind_comes_once_before_any_comes_again() -> None:
    for seed in range(20):
        kinds = [fault.kind for fault in draw(seed=seed, seconds=1_000, every_s=10)]
        assert len(set(kinds[:6])) == 6
        assert set(kinds[6:12]) == set(kinds[:6])


def test_faults_come_in_order_within_the_time() -> None:
    faults = draw(seed=1, seconds=1_800, every_s=12)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert faults[0].at_s > 0
    assert faults[-1].at_s < 1_800
    assert 120 <= len(faults) <= 180


def test_the_steady_member_is_never_ended() -> None:
    faults = draw(seed=2, seconds=20_000, every_s=12)
    ends = {fault.target for fault in faults if fault.kind in ("kill", "replace", "leader")}
    assert ends == {ROLLING, BROKER}
    assert STEADY in {fault.target for fault in faults}
