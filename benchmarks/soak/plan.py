"""What a seed means: the faults of a soak, when they come, whom they hit. Other timing is the machine's own."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from torture_kit.plan import Kind

FEEDER = "feeder"
STEADY = "steady"
"""The member that lives from the beginning to the end: its connections suffer, and its memory is judged."""
ROLLING = "rolling"
"""The member that is killed and replaced again and again."""
BROKER = "broker"

_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (Kind.CUT.value, (FEEDER, STEADY, ROLLING)),
    (Kind.DEAF.value, (FEEDER, STEADY, ROLLING)),
    (Kind.STALL.value, (FEEDER, STEADY, ROLLING)),
    (Kind.KILL.value, (ROLLING,)),
    (Kind.REPLACE.value, (ROLLING,)),
    ("leader", (BROKER,)),
)
"""Kind of fault, as the torture kit names them, and whom it may hit. "leader" kills the broker that leads, and it comes
back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `at_s` counts from the start of the load."""

    at_s: float
    kind: str
    target: str
    duration_s: float = 0.0


def draw(*, seed: int, seconds: float, every_s: float) -> list[Fault]:
    """The faults of a run in the order in which they come: one in `every_s` seconds on average.

    Every kind comes once before any comes again, so that a short run has seen them all.
    """
    random = Random(f"soak/{seed}")
    faults: list[Fault] = []
    kinds: list[tuple[str, tuple[str, ...]]] = []
    at_s = every_s * random.uniform(0.3, 0.7)
    while at_s < seconds:
        if not kinds:
            kinds = list(_KINDS)
            random.shuffle(kinds)
        kind, targets = kinds.pop()
        duration_s = 0.0
        if kind == Kind.DEAF.value:
            duration_s = random.uniform(0.05, 0.4)
        elif kind == Kind.STALL.value:
            duration_s = random.choice([0.3, 0.8, 4.5])
        faults.append(Fault(at_s=at_s, kind=kind, target=random.choice(targets), duration_s=duration_s))
        at_s += every_s * random.uniform(0.6, 1.4)
    return faults
