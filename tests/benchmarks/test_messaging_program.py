"""The program that measures delayed messages runs as often as it is told to, and starts what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import messaging
import pytest
import scheduled_start
from results import Results

from broker_embedded.cluster import EmbeddedCluster
from ottla.records import Record
from ottla.schedule.headers import ScheduledMessage, parse, schedule_topic
from ottla.schedule.wheel import WHEEL
from ottla.testing import Kafka

pytestmark = pytest.mark.complete


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def test_delays_are_measured_in_each_round(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messaging, "LATE", 20)
    monkeypatch.setattr(messaging, "FALL_DUE_S", 0.1)
    results = Results("messaging", None)
    messaging.schedule(results, bootstrap, records=50, runs=2)
    assert {len(each.runs) for each in results.part().results} == {2}


def test_what_waits_where_a_scheduler_starts_is_what_was_asked_for(bootstrap: str) -> None:
    in_open = scheduled_start.prepare(bootstrap, "s", 9_000)
    records: list[Record[bytes]] = Kafka(bootstrap, kind="embedded").consume_all(schedule_topic("s"))
    waiting = [parse(record) for record in records]
    assert len(waiting) == 9_000
    assert all(isinstance(each, ScheduledMessage) and each.topic == "s-target" for each in waiting)
    slots = Counter(record.partition for record in records)
    assert min(slots) >= WHEEL.levels[0].slots, "sent long ago"
    assert 60 <= in_open <= 75
    assert in_open in slots.values()
    assert max(slots.values()) > 6_000, "what the wheel does not reach"


def test_a_scheduler_has_started_when_it_has_read_what_is_open(bootstrap: str) -> None:
    results = Results("messaging", None)
    scheduled_start.start(results, bootstrap, messages=20_000, runs=1)
    assert [(each.what, each.contender) for each in results.part().results] == [
        ("start with 0.02 million scheduled over 30 days", "ottla"),
        ("start with nothing scheduled", "ottla"),
        ("start with 0.02 million scheduled over 30 days, more memory", "ottla"),
    ]


def test_a_slow_handler_is_given_nothing_that_expired(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messaging, "EXPIRING", 30)
    monkeypatch.setattr(messaging, "TTL_S", 0.1)
    assert messaging.expired(bootstrap) == 0
