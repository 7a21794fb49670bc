"""A delayed message with a time to live and a priority, that fails, is retried and dead-lettered, keeps all of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, CommitPolicy, Context, Dead, Json, Priorities, Producer, RetryPolicy, RetryTopics
from ottla.browse.redrive import redrive
from ottla.failures import build_redrive
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.producer.later import later_of, scheduled
from ottla.records import Header, Record
from ottla.schedule.headers import ScheduledMessage, delivered, parse, rolled
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, consumer_for, wait_until
from ottla.testing.topics import create_topic

ORDERS = Priorities("orders", ("urgent", "normal"))
TRACE: Header = ("trace", b"\xff")
WAYS = list(
    itertools.product([False, True], [False, True], [None, "moved"], ["in place", "retry topics"], [False, True])
)


def as_delivered(topic: str, now_ms: int, *, ttl_s: float | None, is_moved: bool) -> list[Header]:
    """The headers of a message that was scheduled, moved to another slot, and delivered."""
    later = later_of(
        topic, deliver_after=0, deliver_at=None, schedule_id="id-1", expires_after=ttl_s, schedule="default"
    )
    slot, key, headers = scheduled(later, topic, None, b"k", [TRACE], now_ms)
    record: Record[Any] = Record("ottla.schedule.default", slot, 3, now_ms, key, b"v", headers, key, b"v")
    message = parse(record)
    assert isinstance(message, ScheduledMessage)
    if is_moved:
        out = rolled(message, 9)
        message = parse(Record(out.topic, 9, 0, now_ms, out.key, out.value, out.headers, out.key, out.value))
        assert isinstance(message, ScheduledMessage)
    found = delivered(message)
    assert (found.topic, found.key, found.value) == (topic, b"k", b"v")
    return found.headers


@pytest.mark.parametrize(("is_urgent", "expires", "moved", "retries", "is_redriven"), WAYS)
def test_every_pair_keeps_what_it_has(
    is_urgent: bool, expires: bool, moved: str | None, retries: str, is_redriven: bool
) -> None:
    seen: list[tuple[str, float | None]] = []

    def handle(record: Record[bytes], context: Any) -> None:
        seen.append((record.topic, context.time_left_s()))
        raise RuntimeError("never")

    consumer = consumer_for(
        handle,
        topics=(ORDERS,),
        dead_letter_topic="dead",
        retry=RetryPolicy(max_attempts=2, initial_s=1, jitter=0) if retries == "in place" else None,
        retry_topics=RetryTopics(delays_s=(1.0,)) if retries == "retry topics" else None,
        on_expired=Dead("too old"),
    )
    topic = ORDERS.topic("urgent" if is_urgent else "normal")
    headers = as_delivered(topic, consumer.clock.now_ms(), ttl_s=60 if expires else None, is_moved=moved is not None)
    for round_number in range(1 + is_redriven):
        (found,) = consumer.deliver_all([b"v"], topic=topic, headers=headers)
        assert found.outcome == "dead"
        assert found.dead_letter is not None
        assert found.dead_letter.kind == "failed"
        names = {name for name, _ in found.dead_letter.headers}
        assert {"trace", "ottla-scheduled-id", "ottla-scheduled-due", "ottla-scheduled-at"} <= names
        assert (EXPIRES_HEADER in names) == expires
        assert [where for where, _ in seen] == [topic] * 2 * (round_number + 1)
        assert all((left_s is not None) == expires for _, left_s in seen)
        redriven = build_redrive(key=b"k", value=b"v", headers=found.dead_letter.headers)
        assert redriven is not None
        assert redriven.topic == topic
        headers = redriven.headers
    if expires:
        consumer.clock.advance(60_000)
        (late,) = consumer.deliver_all([b"v"], topic=topic, headers=headers)
        assert late.dead_letter is not None
        assert late.dead_letter.kind == "expired"
        assert len(seen) == 2 * (1 + is_redriven), "nobody gets it any more"


PAIRS = list(itertools.product([False, True], repeat=3))
"""(is delayed, expires, is urgent), of the message with this number."""

SCHEDULED = {"ottla-scheduled-id", "ottla-scheduled-due", "ottla-scheduled-at"}


def kept(number: int, names: set[str]) -> bool:
    """Whether a record with headers of these names has what the message was sent with, and nothing of the others."""
    is_delayed, expires, _ = PAIRS[number]
    return (
        "trace" in names
        and (names & SCHEDULED) == (SCHEDULED if is_delayed else set())
        and (EXPIRES_HEADER in names) == expires
        and not any(name.startswith("ottla-schedule-") or name == "ottla-schedule" for name in names)
    )


@pytest.mark.representative("threads-retry topics")
@pytest.mark.parametrize("retries", ["in place", "retry topics"])
def test_on_a_broker_each_keeps_what_it_was_sent_with_until_a_redrive_is_handled(
    retries: str, shell: Any, kafka: Kafka, make_topic: Callable[..., str], kafka_group: str
) -> None:
    orders = Priorities(make_topic("orders"), ("urgent", "normal"))
    create_topic(kafka.bootstrap_servers, orders.topic("urgent"))
    dead = make_topic("dead")
    with Scheduler(kafka.bootstrap_servers, name=kafka_group, assigned=()):
        pass  # it makes the schedule
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead,
        commit=CommitPolicy(every_s=0.05),
        scheduler=kafka_group,
    )
    seen: list[tuple[int, str, int, str, set[str], bool]] = []
    is_mended = threading.Event()

    @app.handler(
        orders,
        value=Json(),
        key=str,
        retry=RetryPolicy(max_attempts=2, initial_s=0.05, jitter=0) if retries == "in place" else None,
        retry_topics=RetryTopics(delays_s=(0.1,)) if retries == "retry topics" else None,
    )
    def handle(record: Record[int], key: str, context: Context) -> None:
        names = {name for name, _ in record.headers}
        seen.append((record.value, record.topic, context.attempt, key, names, context.time_left_s() is not None))
        if not is_mended.is_set():
            raise RuntimeError("never")

    shell.start(app)
    with Producer(kafka.bootstrap_servers, value=Json(), key=str, schedule=kafka_group) as producer:
        for number, (is_delayed, expires, is_urgent) in enumerate(PAIRS):
            producer.send(
                orders,
                number,
                key=f"key-{number}",
                headers=[TRACE],
                deliver_after=0.3 if is_delayed else None,
                schedule_id=f"id-{number}" if is_delayed else None,
                expires_after=300 if expires else None,
                priority="urgent" if is_urgent else "normal",
            )
    wait_until(lambda: len(kafka.consume_all(dead)) == len(PAIRS), 60, interval_s=0.05)
    letters = {int(letter.raw_value or b""): letter for letter in kafka.consume_all(dead)}
    for number, letter in letters.items():
        names = {name for name, _ in letter.headers}
        assert kept(number, names), (number, names)
        assert letter.header_text("ottla-dlq-topic") == orders.topic("urgent" if PAIRS[number][2] else "normal")
    is_mended.set()
    failures = len(seen)
    assert failures == 2 * len(PAIRS)
    assert redrive(kafka.bootstrap_servers, dead).redriven == len(PAIRS)
    wait_until(lambda: len(seen) == failures + len(PAIRS), 60)
    shell.stop(app)
    for number, topic, attempt, key, names, has_time_left in seen:
        _, expires, is_urgent = PAIRS[number]
        assert (topic, key) == (orders.topic("urgent" if is_urgent else "normal"), f"key-{number}")
        assert kept(number, names), (number, attempt, names)
        assert has_time_left == expires
    assert sorted(attempt for _, _, attempt, *_ in seen[:failures]) == [1] * len(PAIRS) + [2] * len(PAIRS)
    assert sorted(number for number, *_ in seen[failures:]) == list(range(len(PAIRS)))
