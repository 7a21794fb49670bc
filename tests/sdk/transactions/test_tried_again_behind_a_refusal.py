"""A record that is tried again while its transaction cannot be committed any more.

librdkafka neither sends it nor gives it up: who waits for it waits until the transaction's time is over.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import urandom

import pytest
from both_shells import committed_values

from broker_embedded.cluster import EmbeddedCluster
from ottla import Producer
from ottla.errors import DeliveryError, RecordTooLarge
from ottla.sync.produce.unreported_batches import send_unreported

VALUES = [b"small", urandom(5_000), b"small"]
"""Each in a request of its own."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    name = uuid.uuid4().hex
    cluster.create_topic(name, config={"max.message.bytes": "2000"})
    return name


@contextmanager
def producing(cluster: EmbeddedCluster) -> Iterator[Producer]:
    settings = {"transactional.id": uuid.uuid4().hex, "batch.size": 1_500}
    with Producer(cluster.bootstrap_servers, settings=settings) as producer:
        producer._sizes.leave_to_broker()
        yield producer


@contextmanager
def third_tried_again(cluster: EmbeddedCluster, topic: str, after_ms: int) -> Iterator[None]:
    """The broker's answer to the third record is late, and says that it may be sent again."""
    third = {"api": "PRODUCE", "topic": topic, "skip": 2}
    with (
        cluster.faults.add(**third, delay_ms=after_ms),
        cluster.faults.add(**third, error="NOT_LEADER_OR_FOLLOWER") as refused,
    ):
        yield
        assert refused.hits


def send_with_reports(producer: Producer, topic: str) -> None:
    for value in VALUES:
        producer.send(topic, value)


def send_without(producer: Producer, topic: str) -> None:
    send_unreported(producer, topic, [(value, None, (), None, None) for value in VALUES])


@pytest.mark.representative("send_without-before the commit gives up")
@pytest.mark.parametrize("after_ms", [150, 700], ids=["before the commit gives up", "during the abort"])
@pytest.mark.parametrize("send", [send_with_reports, send_without])
def test_the_commit_says_what_was_refused_and_aborts(
    cluster: EmbeddedCluster,
    topic: str,
    send: Callable[[Producer, str], None],
    after_ms: int,
):
    def commit() -> None:
        with producer.transaction(timeout_s=20):
            send(producer, topic)

    with producing(cluster) as producer:
        with third_tried_again(cluster, topic, after_ms), pytest.raises(DeliveryError) as raised:
            commit()
        said = str(raised.value)
        assert "not acknowledged yet" not in said, "it was waited for"
        assert not any("abort" in note for note in raised.value.__notes__), "the abort has no end"
        if send is send_with_reports:
            assert isinstance(raised.value.__cause__, RecordTooLarge)
        else:
            assert "MSG_SIZE_TOO_LARGE" in said
        assert len(producer) == 0
        with (
            suppress(DeliveryError),
            producer.transaction(),
        ):  # librdkafka skips sequence numbers, and finds out by this
            producer.send(topic, b"next")
        with producer.transaction():
            producer.send(topic, b"after")
    assert asyncio.run(committed_values(cluster, topic)) in ([b"after"], [b"next", b"after"])


def test_a_transaction_that_fails_for_the_one_before_it_says_so(cluster: EmbeddedCluster, topic: str):
    """A record that is refused leaves a gap in the sequence numbers: librdkafka gives up the record behind it."""
    with producing(cluster) as producer:

        def send(value: bytes) -> None:
            with producer.transaction():
                producer.send(topic, value)

        with pytest.raises(DeliveryError, match="the limit is 2,000 bytes"):
            send(VALUES[1])
        with pytest.raises(DeliveryError, match="given up with its transaction") as raised:
            send(b"next")
        assert "skipped sequence numbers" in str(raised.value.__cause__)
        send(b"after")
    assert asyncio.run(committed_values(cluster, topic)) == [b"after"]
