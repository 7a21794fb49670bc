"""A series that keeps growing is told from one that goes up and down."""

from __future__ import annotations

from random import Random

from soak.flatness import FEWEST_SAMPLES, descriptor_growth, memory_growth, slope

MINUTE = 60.0


def series(of: object, *, seconds: float = 1_800, every: float = 10) -> list[tuple[float, float]]:
    return [(at * every, of(at * every)) for at in range(int(seconds / every))]  # type: ignore[operator]


def test_noise_around_a_level_is_flat() -> None:
    random = Random(1)
    growth = memory_growth("m", series(lambda at: 50 + random.uniform(-3, 3)))
    assert growth is not None
    assert growth.is_flat
    assert abs(growth.slope_per_hour) < 3


def test_a_leak_of_half_a_megabyte_a_minute_is_no_noise() -> None:
    random = Random(2)
    growth = memory_growth("m", series(lambda at: 50 + 0.5 * at / MINUTE + random.uniform(-3, 3)))
    assert growth is not None
    assert not growth.is_flat
    assert 25 < growth.slope_per_hour < 35


def test_what_grows_only_while_it_warms_up_is_flat() -> None:
    growth = memory_growth("m", series(lambda at: min(120.0, 30 + at)))
    assert growth is not None
    assert growth.is_flat
    assert growth.growth == 0


def test_one_burst_does_not_make_a_slope() -> None:
    growth = memory_growth("m", series(lambda at: 400.0 if 1_500 < at < 1_600 else 50.0))
    assert growth is not None
    assert growth.is_flat
    assert growth.most == 400


def test_a_descriptor_that_stays_open_at_each_fault_is_found() -> None:
    growth = descriptor_growth("d", series(lambda at: 200 + at // 12))
    assert growth is not None
    assert not growth.is_flat


def test_falling_is_flat() -> None:
    growth = descriptor_growth("d", series(lambda at: 900 - at / 10))
    assert growth is not None
    assert growth.is_flat


def test_too_few_samples_give_no_verdict() -> None:
    assert memory_growth("m", [(float(at), 1.0) for at in range(FEWEST_SAMPLES)]) is None


def test_the_slope_of_a_line_is_the_line() -> None:
    assert slope([(at, 3.0 * at + 7) for at in range(50)]) == 3.0


def test_the_sentence_says_which_it_is() -> None:
    leak, level = memory_growth("m", series(lambda at: at)), memory_growth("m", series(lambda at: 1.0))
    assert str(leak).endswith("GROWS")
    assert str(level).endswith("flat")
