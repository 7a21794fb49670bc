"""Records of a transaction without delivery reports: in order, all of them, and none where one is not delivered."""

from __future__ import annotations

import uuid
from os import urandom
from typing import Any

import pytest

from ottla import Producer
from ottla.errors import DeliveryError, LifecycleError, OttlaError
from ottla.sync.produce.unreported_batches import can_send_unreported, send_unreported


def transactional(kafka: Any, **settings: Any) -> Producer:
    settings = {"transactional.id": uuid.uuid4().hex, **settings}
    return Producer(kafka.bootstrap_servers, settings=settings)


def bare(value: bytes, key: bytes | None = None, headers: Any = (), partition: int | None = None) -> Any:
    return value, key, headers, partition, None


def test_what_a_batch_can_have_and_what_it_cannot_keep_their_order(kafka: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=1)
    records = [
        (
            b"%d" % n,
            b"k" if n % 2 else None,
            [("h", b"%d" % n)] if n % 700 == 5 else (),
            0 if n % 900 == 7 else None,
            None,
        )
        for n in range(2_500)
    ]
    with transactional(kafka) as producer:
        assert can_send_unreported(producer)
        with producer.transaction():
            batch = send_unreported(producer, topic, records)
        assert batch.done()
        assert batch.sent == 2_500
        assert batch.result(0) == 2_500
    found = kafka.consume_all(topic, at_least=2_500)
    assert [record.value for record in found] == [value for value, *_ in records]
    assert [record.key for record in found] == [key for _, key, *_ in records]
    assert [list(record.headers) for record in found] == [list(headers) for _, _, headers, *_ in records]


def test_a_full_buffer_is_waited_for_and_the_order_stays(kafka: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=1)
    with transactional(kafka, **{"queue.buffering.max.messages": 150}) as producer, producer.transaction():
        send_unreported(producer, topic, [bare(b"%d" % n) for n in range(1_000)])
    assert [record.value for record in kafka.consume_all(topic, at_least=1_000)] == [b"%d" % n for n in range(1_000)]


def test_a_record_that_the_broker_refuses_makes_the_commit_fail(kafka: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=1, config={"max.message.bytes": "2000"})

    def commit_one_that_is_too_large() -> None:
        with producer.transaction():
            producer._sizes.leave_to_broker()
            send_unreported(producer, topic, [bare(b"small"), bare(urandom(5_000)), bare(b"small")])

    with transactional(kafka, **{"batch.size": 1_500}) as producer:
        with pytest.raises(DeliveryError) as raised:
            commit_one_that_is_too_large()
        assert topic in str(raised.value)
        assert "MSG_SIZE_TOO_LARGE" in str(raised.value)
        with producer.transaction():
            send_unreported(producer, topic, [bare(b"after")])
    assert [record.value for record in kafka.consume_all(topic, at_least=1)] == [b"after"]


def test_what_is_aborted_is_not_waited_for(kafka: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=1)

    def fail() -> None:
        with producer.transaction():
            send_unreported(producer, topic, [bare(b"never")])
            raise ZeroDivisionError

    with transactional(kafka) as producer:
        with pytest.raises(ZeroDivisionError):
            fail()
        assert len(producer) == 0
        producer.flush(5)


def test_what_the_client_does_not_take_raises_at_once(kafka: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=1)
    with transactional(kafka) as producer:
        for wrong in (bare(b"v", partition=7), bare(b"v", partition="none")):  # type: ignore[arg-type]
            transaction = producer.transaction()
            with pytest.raises(OttlaError), transaction:
                send_unreported(producer, topic, [wrong])
    with transactional(kafka) as producer, pytest.raises(LifecycleError):
        send_unreported(producer, topic, [bare(b"outside of a transaction")])


def test_listeners_hear_of_lots(kafka: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=1)
    with transactional(kafka) as producer:
        with producer.transaction():
            batch = send_unreported(producer, topic, [bare(b"v")] * 10)
        assert not producer._reports.tracker.unfinished()
        assert (batch.pending, batch.exception(0)) == (0, None)
