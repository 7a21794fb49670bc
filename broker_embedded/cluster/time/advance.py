"""How a long stretch of time passes: which moments the clock visits between here and there.

Up to `WALK_NS` every timer runs at its own moment, in order, and whatever it starts has come to rest before time moves
on. That is exact, and for a week it would be too much of a good thing: three nodes that tell each other ten times a
second that they are alive say it six million times. So a longer stretch is leapt over, in a few leaps:

    now ──leap──▶ walk ½ s ──leap──▶ walk ½ s ── ... ──leap──▶ walk the last ten seconds ──▶ target

A leap is what a suspended machine sees. Timers that were due soon (within `NEAR_NS`: heartbeats, elections) keep the
time they had left, so nobody seems dead who was merely asleep; they run in the walk that follows. So do those that say
of themselves that they wait for an answer under way. All others run when the leap ends. Several leaps, because what a
timer starts may set another one: a check finds an old segment, and a minute later its file is removed.

Pure: no loop, no clock. Times are nanoseconds.
"""

from __future__ import annotations

from ottla_wire.facts import fact

SECOND_NS = 1_000_000_000
WALK_NS = 60 * SECOND_NS
"""Longer stretches are leapt over."""
NEAR_NS = 10 * SECOND_NS
"""The last walk lasts as long, so that every timer that a leap carried along has run when the target is reached."""
LEAPS = 4
REST_NS = SECOND_NS // 2
"""The walk between two leaps."""


@fact
class ClockStage:
    """Reach `until_ns`, timer by timer or in one leap."""

    until_ns: int
    is_leap: bool


def plan(*, now_ns: int, target_ns: int) -> list[ClockStage]:
    """Return the stages from now to the target, in order."""
    stages: list[ClockStage] = []
    if target_ns - now_ns > WALK_NS:
        to_leap_ns = target_ns - NEAR_NS - now_ns
        for number in range(1, LEAPS + 1):
            landing_ns = now_ns + to_leap_ns * number // LEAPS
            stages.append(ClockStage(until_ns=landing_ns, is_leap=True))
            if number < LEAPS:
                stages.append(ClockStage(until_ns=landing_ns + REST_NS, is_leap=False))
    stages.append(ClockStage(until_ns=target_ns, is_leap=False))
    return stages
