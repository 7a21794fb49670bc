"""The soak's judge finds each kind of mistake, and none where there is none."""

from __future__ import annotations

import pytest
from soak.oracle import Found, settle

from ottla.cli.demo.model import Flight, is_flaky, is_truncated

SENT = 3_000


def flight(*, is_cancelled: bool) -> Flight:
    return Flight(
        carrier="UA",
        flight=1,
        tailnum="N1",
        origin="EWR",
        dest="IAH",
        scheduled_ms=0,
        dep_time=None if is_cancelled else 517,
        dep_delay=2,
        arr_delay=11,
        distance=1_400,
    )


FLIGHTS = [flight(is_cancelled=number % 40 == 7) for number in range(100)]
TRUNCATED = [each for each in range(SENT) if is_truncated(each)]
CANCELLED = [each for each in range(SENT) if not is_truncated(each) and FLIGHTS[each % 100].dep_time is None]
DEAD = {*TRUNCATED, *CANCELLED}
FINE = [each for each in range(SENT) if each not in DEAD and not is_flaky(each)]
FLAKY = [each for each in range(SENT) if each not in DEAD and is_flaky(each)]


def found(
    *, in_topic: list[int] | None = None, handled: list[tuple[int, int]] | None = None, dead: list | None = None
) -> Found:
    right = [(each, 1) for each in FINE] + [(each, 3) for each in FLAKY]
    letters = [(each, "malformed") for each in TRUNCATED] + [(each, "invalid") for each in CANCELLED]
    return Found(
        in_topic=list(range(SENT)) if in_topic is None else in_topic,
        handled=right if handled is None else handled,
        dead=letters if dead is None else dead,
    )


def test_the_sample_has_every_fate() -> None:
    assert min(len(TRUNCATED), len(CANCELLED), len(FINE), len(FLAKY)) > 0


def test_what_is_whole_has_no_violation() -> None:
    account = settle(FLIGHTS, SENT, found())
    assert account.violations == ()
    assert (account.sent, account.duplicates) == (SENT, 0)
    assert account.handled + account.dead == SENT


def test_a_duplicate_is_counted_and_allowed() -> None:
    right = found()
    account = settle(FLIGHTS, SENT, found(handled=[*right.handled, (FINE[0], 1)], dead=[*right.dead, right.dead[0]]))
    assert account.violations == ()
    assert account.duplicates == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (found(handled=[*found().handled][1:]), "lost"),
        (found(dead=[*found().dead][1:]), "lost"),
        (found(in_topic=list(range(SENT - 1))), "acknowledged and not in the topic"),
        (found(in_topic=[*range(SENT), 5]), "idempotence"),
        (found(in_topic=[*range(SENT + 1)]), "never sent"),
        (found(handled=[*found().handled, (SENT, 1)]), "never sent"),
        (found(dead=[(each, "failed") for each, _ in found().dead]), "another reason"),
        (found(dead=[*found().dead, (FINE[0], "failed")]), "another reason"),
        (found(handled=[*found().handled, (CANCELLED[0], 1)]), "cannot be"),
        (found(handled=[(each, 1) for each in [*FINE, *FLAKY]]), "third attempt"),
    ],
)
def test_each_mistake_is_named(wrong: Found, words: str) -> None:
    (violation,) = [each for each in settle(FLIGHTS, SENT, wrong).violations if words in each]
    assert violation
