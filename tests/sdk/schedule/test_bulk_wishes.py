"""`send_many` with what `send` may be asked for: the same wishes for all its records, in both shells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import InputError, Json, Priorities
from ottla.failures.expiry import expires_at_of
from ottla.records import Record
from ottla.schedule.headers import ScheduledMessage, parse, schedule_topic
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka
from tests.kit.both_shells import PRODUCERS

RECORDS = [(number, f"k{number}", [("own", b"%d" % number), ("ottla-expires-at", b"1")]) for number in range(700)]


@pytest.mark.parametrize("shell", [*PRODUCERS])
async def test_all_of_them_are_delayed(
    shell: str, kafka: Kafka, make_topic: Callable[..., str], kafka_group: str
) -> None:
    topic = make_topic()
    with Scheduler(kafka.bootstrap_servers, name=kafka_group, assigned=()):
        pass  # it has made the schedule
    async with PRODUCERS[shell](kafka.bootstrap_servers, value=Json(), key=str, schedule=kafka_group) as producer:
        await (await producer.send_many(topic, RECORDS, deliver_after=3_600, expires_after=60))
        with pytest.raises(InputError, match="deliver_after"):
            await producer.send_many(topic, RECORDS, deliver_after=-1)
    waiting = [parse(record) for record in kafka.consume_all(schedule_topic(kafka_group))]
    assert len(waiting) == len(RECORDS)
    found = {message.value: message for message in waiting if isinstance(message, ScheduledMessage)}
    for number, key, headers in RECORDS:
        message = found[b"%d" % number]
        assert (message.topic, message.key, message.ttl_ms) == (topic, key.encode(), 60_000)
        assert list(message.headers) == headers
        assert message.due_ms == message.at_ms + 3_600_000
    assert not kafka.consume_all(topic)


@pytest.mark.parametrize("shell", [*PRODUCERS])
@pytest.mark.parametrize("is_transactional", [False, True])
async def test_all_of_them_expire_and_have_a_priority(
    shell: str, is_transactional: bool, kafka: Kafka, make_topic: Callable[..., str], kafka_group: str
) -> None:
    orders = Priorities(make_topic(), ("urgent", "normal"))
    kafka.create_topic(orders.topic("urgent"))
    settings = {"transactional.id": kafka_group} if is_transactional else {}
    async with PRODUCERS[shell](kafka.bootstrap_servers, value=Json(), key=str, settings=settings) as producer:
        if is_transactional:
            async with producer.transaction():
                await producer.send_many(orders, RECORDS, priority="urgent", expires_after=60)
        else:
            await (await producer.send_many(orders, RECORDS, priority="urgent", expires_after=60))
    records: list[Record[Any]] = kafka.consume_all(orders.topic("urgent"))
    assert len(records) == len(RECORDS)
    for record in records:
        expires_ms = expires_at_of(record.headers)
        assert expires_ms is not None
        assert 0 < expires_ms - record.timestamp_ms <= 61_000
        assert [name for name, _ in record.headers] == ["own", "ottla-expires-at"]
