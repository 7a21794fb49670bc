"""A delayed message with a time to live and a priority, that fails, is retried and dead-lettered, keeps all of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ottla import Dead, Priorities, RetryPolicy, RetryTopics
from ottla.failures import build_redrive
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.producer.later import later_of, scheduled
from ottla.records import Header, Record
from ottla.schedule.headers import Waiting, delivered, parse, rolled
from ottla.testing import consumer_for

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
    slot, headers = scheduled(later, topic, None, b"k", [TRACE], now_ms)
    record: Record[Any] = Record("ottla.schedule.default", slot, 3, now_ms, later.id, b"v", headers, later.id, b"v")
    message = parse(record)
    assert isinstance(message, Waiting)
    if is_moved:
        out = rolled(message, 9)
        message = parse(Record(out.topic, 9, 0, now_ms, out.key, out.value, out.headers, out.key, out.value))
        assert isinstance(message, Waiting)
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
