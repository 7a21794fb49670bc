"""Whether a series of samples is flat: the median of the slopes between all pairs (Theil and Sen), after a warm-up.

A median of slopes ignores what goes up and comes down again, a garbage collection or a burst; only what keeps growing
moves it. The slope is held against what the whole judged time may add.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

FEWEST_SAMPLES = 8
MOST_SAMPLES = 600
"""More are thinned out evenly: the pairs grow with the square."""

WARM_UP = 1 / 3
"""So much of a run is not judged: buffers grow to their size, code is compiled, pools fill."""

MEMORY_MB, MEMORY_SHARE = 6.0, 0.08
"""What the judged time may add to a process: the larger of the two."""

DESCRIPTORS = 6.0
"""Connections come and go with the faults; one that stays open at each of them is more than this in two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One judged series."""

    what: str
    unit: str
    typical: float
    """The median of the judged samples."""
    most: float
    slope_per_hour: float
    growth: float
    """The slope times the judged time."""
    allowed: float
    seconds: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.allowed

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "GROWS"
        return (
            f"{self.what:28}{self.typical:9.1f} {self.unit} (most {self.most:.1f}), slope {self.slope_per_hour:+8.2f} "
            f"an hour: {self.growth:+.2f} in {self.seconds:.0f} s, allowed {self.allowed:.1f}: {verdict}"
        )


def memory_growth(what: str, samples: Sequence[tuple[float, float]]) -> Growth | None:
    """Samples are (seconds, MB). None: too few to judge."""
    return _growth(what, "MB", samples, at_least=MEMORY_MB, share=MEMORY_SHARE)


def descriptor_growth(what: str, samples: Sequence[tuple[float, float]]) -> Growth | None:
    """Samples are (seconds, open descriptors). None: too few to judge."""
    return _growth(what, "open", samples, at_least=DESCRIPTORS, share=0.0)


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs, per second."""
    return statistics.median(
        (later - earlier) / (later_s - earlier_s)
        for (earlier_s, earlier), (later_s, later) in combinations(samples, 2)
        if later_s > earlier_s
    )


def _growth(
    what: str, unit: str, samples: Sequence[tuple[float, float]], *, at_least: float, share: float
) -> Growth | None:
    judged = samples[int(len(samples) * WARM_UP) :]
    if len(judged) < FEWEST_SAMPLES:
        return None
    judged = judged[:: max(1, len(judged) // MOST_SAMPLES)]
    seconds = judged[-1][0] - judged[0][0]
    typical = statistics.median(value for _, value in judged)
    per_second = slope(judged)
    return Growth(
        what=what,
        unit=unit,
        typical=typical,
        most=max(value for _, value in samples),
        slope_per_hour=per_second * 3600,
        growth=per_second * seconds,
        allowed=max(at_least, share * typical),
        seconds=seconds,
    )
