"""The account must notice each way in which a record can go missing: one that always balances proves nothing."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.cli.demo.account import Expected, ReadBack, settle
from ottla.cli.demo.model import Flight, is_flaky, is_truncated


def flights(count: int) -> list[Flight]:
    return [
        Flight(
            carrier="UA",
            flight=number,
            tailnum="N1",
            origin="EWR",
            dest="IAH",
            scheduled_ms=1_357_000_000_000 + number,
            dep_time=None if number % 50 == 7 else 517,
            dep_delay=None if number % 50 == 7 else 2,
            arr_delay=None,
            distance=1_400,
        )
        for number in range(count)
    ]


@pytest.fixture
def expected() -> Expected:
    return Expected.of(flights(3_000))


@pytest.fixture
def found(expected: Expected) -> ReadBack:
    """What a run without any fault reads back."""
    refused = expected.truncated | expected.cancelled
    means = {("UA", 0): (2.0, expected.delays)}
    return ReadBack(
        in_topic=list(range(expected.events)),
        handled=[event_id for event_id in range(expected.events) if event_id not in refused],
        handled_after_retries=expected.flaky,
        dead=[(event_id, "malformed") for event_id in sorted(expected.truncated)]
        + [(event_id, "invalid") for event_id in sorted(expected.cancelled)],
        pipeline_delays=expected.delays,
        pipeline_malformed=len(expected.truncated),
        parquet_means=means,
        topic_means=dict(means),
    )


def test_a_run_without_faults_balances(expected: Expected, found: ReadBack) -> None:
    account = settle(expected, found)
    assert account.balances
    assert (account.lost, account.duplicates) == (0, 0)


def test_what_is_expected_covers_every_kind_of_record(expected: Expected) -> None:
    assert expected.truncated == {event_id for event_id in range(3_000) if is_truncated(event_id)}
    assert expected.flaky == {
        event_id
        for event_id in range(3_000)
        if is_flaky(event_id) and event_id not in expected.truncated | expected.cancelled
    }
    assert expected.truncated
    assert expected.flaky
    assert len(expected.cancelled) > 50


def test_a_record_handled_twice_is_a_duplicate_and_still_balances(expected: Expected, found: ReadBack) -> None:
    account = settle(expected, dataclasses.replace(found, handled=[*found.handled, found.handled[0]]))
    assert account.balances
    assert account.duplicates == 1


def test_a_record_that_nobody_handled_is_lost(expected: Expected, found: ReadBack) -> None:
    account = settle(expected, dataclasses.replace(found, handled=found.handled[:-1]))
    assert not account.balances
    assert account.lost == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda found: {"in_topic": found.in_topic[:-1]},
        lambda found: {"in_topic": [*found.in_topic, 0]},
        lambda found: {"handled": [*found.handled, 3_001]},
        lambda found: {"handled": [*found.handled, found.dead[0][0]]},
        lambda found: {"dead": found.dead[1:]},
        lambda found: {"dead": [(event_id, "failed") for event_id, _ in found.dead]},
        lambda found: {"handled_after_retries": frozenset()},
        lambda found: {"pipeline_delays": found.pipeline_delays - 1},
        lambda found: {"pipeline_malformed": found.pipeline_malformed + 1},
        lambda found: {"topic_means": {}},
        lambda found: {"parquet_means": {}, "topic_means": {}},
    ],
    ids=[
        "missing in the topic",
        "twice in the topic",
        "handled but never sent",
        "handled and dead-lettered",
        "dead letter missing",
        "wrong reason",
        "no retries seen",
        "pipeline missed one",
        "pipeline refused one too many",
        "results differ",
        "no results",
    ],
)
def test_every_other_difference_unbalances_it(expected: Expected, found: ReadBack, change) -> None:
    assert not settle(expected, dataclasses.replace(found, **change(found))).balances
