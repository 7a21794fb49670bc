"""A record that its own topic took never stops its partition for its size, in both shells."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ottla import App, CommitPolicy, Dead, Producer, RetryPolicy, RetryTopics
from ottla.browse.redrive import redrive
from ottla.failures import describe_dead_letter
from ottla.telemetry import Counters

SHELLS = ["threads", "asyncio", "columns"]

LIMIT = 20_000


@pytest.fixture
def app(kafka: Any, kafka_group: str) -> App:
    return App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        retry=RetryPolicy(max_attempts=1),
        commit=CommitPolicy(every_s=0.05),
        hooks=Counters(),
    )


def send(kafka: Any, topic: str, value: bytes, **options: Any) -> None:
    settings = {"compression.type": "gzip", "max.request.size": 8_000_000, "batch.size": 10_000}
    with Producer(kafka.bootstrap_servers, settings=settings) as producer:
        producer._sizes.leave_to_broker()
        producer.send(topic, value, key=b"k", **options)


def dead_letters_every(app: App, topic: str, dead_topic: str) -> None:
    @app.handler(topic, dead_letter_topic=dead_topic)
    def handle(value: bytes) -> Dead:
        return Dead("refused")


@pytest.mark.representative("columns")
def test_what_its_topic_took_compressed_is_a_dead_letter_with_its_value(
    app: App, shell: Any, kafka: Any, make_topic: Any, committed: Any, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    value = b"abcdefgh" * 200_000  # 1.6 MB; the limit of both topics is 1 MB
    send(kafka, topic, value)
    dead_letters_every(app, topic, dead_topic)
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 1, timeout_s=30)

    (letter,) = kafka.consume_all(dead_topic)
    view = describe_dead_letter(letter.headers)
    assert letter.raw_value == value
    assert view is not None
    assert (view.omitted, view.message) == (None, "refused")


@pytest.mark.representative("asyncio-400-True")
@pytest.mark.parametrize(("room", "is_whole"), [(400, True), (60, False)])
def test_near_a_shared_limit_headers_shrink_first_and_then_the_value_stays_where_it_is(
    app: App, shell: Any, kafka: Any, make_topic: Any, committed: Any, wait: Any, room: int, is_whole: bool
) -> None:
    topic = make_topic("orders", config={"max.message.bytes": LIMIT})
    dead_topic = make_topic("dead", config={"max.message.bytes": LIMIT})
    value = os.urandom(LIMIT - 100 - room)
    send(kafka, topic, value, headers=[("own", b"1")])
    send(kafka, topic, b"small")

    @app.handler(topic, dead_letter_topic=dead_topic)
    def handle(value: bytes) -> None:
        raise ValueError("x" * 1_000)

    shell.start(app)
    wait(lambda: committed(app.group, topic) == 2, timeout_s=30)

    letter, _ = kafka.consume_all(dead_topic)
    view = describe_dead_letter(letter.headers)
    assert view is not None
    assert view.origin == f"{topic}-0@0"
    assert letter.header("own") == b"1"
    assert letter.raw_key == b"k"
    assert letter.raw_value == (value if is_whole else None)
    assert view.omitted == (None if is_whole else "value")
    assert app.hooks["dead_letter_without_value"] == (0 if is_whole else 1)  # type: ignore[index]
    assert app.hooks["record_dead_lettered"] == 2  # type: ignore[index]
    assert app.health().is_ready


def test_a_claim_is_sent_back_as_the_record_it_stands_for(
    app: App, shell: Any, kafka: Any, make_topic: Any, committed: Any, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead", config={"max.message.bytes": 600})
    again = make_topic("again")
    value, headers = os.urandom(5_000), [("own", os.urandom(800))]
    send(kafka, topic, value, headers=headers)
    dead_letters_every(app, topic, dead_topic)
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 1, timeout_s=30)
    shell.stop(app)

    (letter,) = kafka.consume_all(dead_topic)
    view = describe_dead_letter(letter.headers)
    assert view is not None
    assert view.omitted == "key,value,headers"
    report = redrive(kafka.bootstrap_servers, dead_topic, to_topic=again)
    assert (report.redriven, report.gone) == (1, 0)
    (record,) = kafka.consume_all(again)
    assert (record.raw_key, record.raw_value) == (b"k", value)
    (first_timestamp,) = [value for name, value in record.headers if name == "ottla-redriven-timestamp"]
    assert record.headers == [*headers, ("ottla-redriven", b"1"), ("ottla-redriven-timestamp", first_timestamp)]


def test_a_claim_whose_record_is_gone_is_counted_and_never_sent_as_a_tombstone(kafka: Any, make_topic: Any) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    headers = [
        ("ottla-dlq-version", b"1"),
        ("ottla-dlq-topic", topic.encode()),
        ("ottla-dlq-partition", b"0"),
        ("ottla-dlq-offset", b"7"),
        ("ottla-dlq-timestamp", b"1"),
        ("ottla-dlq-omitted", b"value"),
    ]
    kafka.produce(dead_topic, [b""], keys=["k"], headers=headers, key=str, value=bytes)
    report = redrive(kafka.bootstrap_servers, dead_topic)

    assert (report.seen, report.redriven, report.gone, report.homeless) == (1, 0, 1, 0)
    assert kafka.consume_all(topic) == []


@pytest.mark.representative("columns")
def test_what_no_retry_topic_takes_is_a_dead_letter_and_its_key_goes_on(
    app: App, shell: Any, kafka: Any, make_topic: Any, committed: Any, wait: Any
) -> None:
    topic = make_topic("orders", config={"max.message.bytes": 4_000_000})
    dead_topic = make_topic("dead", config={"max.message.bytes": 4_000_000})
    large = os.urandom(1_500_000)  # the retry topic is made with the broker's limit of 1 MB
    send(kafka, topic, large)
    send(kafka, topic, b"behind")
    handled: list[int] = []

    @app.handler(topic, dead_letter_topic=dead_topic, retry_topics=RetryTopics(delays_s=(0.1,)))
    def handle(value: bytes) -> None:
        handled.append(len(value))
        if len(value) > 100:
            raise ConnectionError("busy")

    shell.start(app)
    wait(lambda: committed(app.group, topic) == 2 and 6 in handled, timeout_s=60)

    (letter,) = kafka.consume_all(dead_topic)
    view = describe_dead_letter(letter.headers)
    assert letter.raw_value == large
    assert view is not None
    assert (view.error_type, view.attempts) == ("ConnectionError", 1)
    assert "does not take the record" in (view.message or "")
    assert app.health().is_ready
