"""The demo's account: what was read back from the topics, compared with what was sent. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.cli.demo.model import Flight, is_flaky, is_truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected result, computed from the data alone."""

    events: int
    truncated: frozenset[int]
    cancelled: frozenset[int]
    flaky: frozenset[int]
    delays: int
    """Flights that departed and whose event arrives whole: what the pipeline's means are taken over."""

    @classmethod
    def of(cls, flights: Iterable[Flight]) -> Expected:
        truncated, cancelled, flaky = set(), set(), set()
        events = 0
        for event_id, flight in enumerate(flights):
            events += 1
            if is_truncated(event_id):
                truncated.add(event_id)
            elif flight.dep_time is None:
                cancelled.add(event_id)
            elif is_flaky(event_id):
                flaky.add(event_id)
        return cls(
            events=events,
            truncated=frozenset(truncated),
            cancelled=frozenset(cancelled),
            flaky=frozenset(flaky),
            delays=events - len(truncated) - len(cancelled),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """The final content of the topics. Ids are event ids, one per record, repeats kept."""

    in_topic: list[int]
    handled: list[int]
    handled_after_retries: frozenset[int]
    dead: list[tuple[int, str]]
    """Event id and reason kind of each dead letter."""
    pipeline_delays: int
    """Sum of the `flights` column of the pipeline's result."""
    pipeline_malformed: int
    """Dead letters of the pipeline."""
    parquet_means: Mapping[tuple[str, int], tuple[float, int]]
    """(carrier, hour) to (mean delay, flights), from Parquet."""
    topic_means: Mapping[tuple[str, int], tuple[float, int]]
    """The same account from the newest record of each key in the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the account."""

    what: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAccount:
    """The whole account. It balances when every line holds."""

    lines: tuple[Line, ...]
    lost: int
    duplicates: int

    @property
    def balances(self) -> bool:
        return all(line.holds for line in self.lines)


def settle(expected: Expected, found: ReadBack) -> DemoAccount:
    """Compare what was found with what was expected.

    Duplicates are counted and allowed: the services commit at least once. Everything else must be exact.
    """
    sent = set(range(expected.events))
    in_topic = set(found.in_topic)
    handled = set(found.handled)
    dead = {event_id for event_id, _ in found.dead}
    accounted = handled | dead
    lost = len(sent - accounted)
    duplicates = len(found.handled) + len(found.dead) - len(accounted)
    reasons: dict[int, set[str]] = {}
    for event_id, kind in found.dead:
        reasons.setdefault(event_id, set()).add(kind)
    kinds = Counter(kind for kinds_of_one in reasons.values() for kind in kinds_of_one)
    malformed = {event_id for event_id, kinds_of_one in reasons.items() if "malformed" in kinds_of_one}
    invalid = {event_id for event_id, kinds_of_one in reasons.items() if "invalid" in kinds_of_one}
    lines = (
        Line(
            what="produced, read back",
            found=f"{len(found.in_topic):,} records, {len(in_topic):,} distinct",
            holds=in_topic == sent and len(found.in_topic) == expected.events,
        ),
        Line(
            what="produced = handled + dead",
            found=f"{expected.events:,} = {len(handled):,} + {len(dead):,}",
            holds=expected.events == len(handled) + len(dead),
        ),
        Line(what="lost", found=f"{lost:,}", holds=lost == 0 and accounted <= sent),
        Line(what="duplicates (at least once)", found=f"{duplicates:,}", holds=True),
        Line(
            what="dead letters: truncated",
            found=f"{kinds['malformed']:,} of {len(expected.truncated):,}",
            holds=malformed == expected.truncated,
        ),
        Line(
            what="dead letters: cancelled",
            found=f"{kinds['invalid']:,} of {len(expected.cancelled):,}",
            holds=invalid == expected.cancelled,
        ),
        Line(
            what="handled at third attempt",
            found=f"{len(found.handled_after_retries):,} of {len(expected.flaky):,}",
            holds=found.handled_after_retries == expected.flaky,
        ),
        Line(
            what="pipeline: departures",
            found=f"{found.pipeline_delays:,} of {expected.delays:,}",
            holds=found.pipeline_delays == expected.delays,
        ),
        Line(
            what="pipeline: dead letters",
            found=f"{found.pipeline_malformed:,} of {len(expected.truncated):,}",
            holds=found.pipeline_malformed == len(expected.truncated),
        ),
        Line(
            what="pipeline: Parquet = topic",
            found=f"{len(found.parquet_means):,} and {len(found.topic_means):,} carrier hours",
            holds=found.parquet_means == found.topic_means and len(found.parquet_means) > 0,
        ),
    )
    return DemoAccount(lines=lines, lost=lost, duplicates=duplicates)
