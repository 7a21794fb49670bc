"""Our own client in fetch sessions (KIP-227): what it says of a hundred partitions, and what it reads of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.records import TopicPartition
from ottla.wire_client import wire_settings
from ottla.wire_client.fetching.consumer_fetch_plan import ConsumerFetchPlan
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ApiKey, ErrorCode

pytestmark = pytest.mark.client_contract

PARTITIONS = 100
Make = Callable[..., bytes]


class Reader:
    """Reads all partitions of a topic from one broker, at the version where topics go by their names."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = wire_settings({"bootstrap.servers": servers})
        host, _, port = servers.split(",")[0].rpartition(":")
        self.connection = Connection(host, int(port), settings)
        self.plan = ConsumerFetchPlan(settings)
        self.places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        for place in self.places:
            self.plan.add(place, 0)
        self.named = 0
        self.session = (0, 0)
        self.read: list[TopicPartition] = []

    def fetch(self) -> ErrorCode:
        ask = self.plan.ask(1, self.plan.wanted(), ids=None, max_wait_ms=100)
        assert ask is not None
        self.named = sum(len(topic["partitions"]) for topic in ask.body["topics"])
        self.session = ask.body["session_id"], ask.body["session_epoch"]
        response = self.connection.call(ApiKey.FETCH, ask.body, newest=12)
        for segment, turn in self.plan.answered(ask, response).segments:
            self.read.append(TopicPartition(segment.topic, segment.partition))
            self.plan.advance(segment, turn, segment.start + 1)
        return ErrorCode.of(response.error_code)

    def say(self, **fields: Any) -> Any:
        body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "topics": [], "forgotten_topics_data": []}
        return self.connection.call(ApiKey.FETCH, body | fields, newest=12)


@pytest.fixture
def reader(kafka: Any, bootstrap_servers: str) -> Iterator[Reader]:
    made = Reader(bootstrap_servers, kafka.create_topic(partitions=PARTITIONS))
    yield made
    made.connection.close()


def test_what_is_named_once_is_read_until_it_is_let_go(reader: Reader, kafka: Any, make_records: Make) -> None:
    assert (reader.fetch(), reader.named, reader.session) == (ErrorCode.NONE, PARTITIONS, (0, 0))
    for epoch in (1, 2):
        assert (reader.fetch(), reader.named, reader.session[1]) == (ErrorCode.NONE, 0, epoch)
    topic, session_id = reader.places[0].topic, reader.session[0]
    assert session_id > 0
    kafka.produce(topic, make_records(b"a"), partition=42)
    reader.fetch()
    assert reader.read == [(topic, 42)]
    assert (reader.fetch(), reader.named) == (ErrorCode.NONE, 1)
    reader.plan.pause([reader.places[7]])
    reader.fetch()
    kafka.produce(topic, make_records(b"b"), partition=7)
    reader.fetch()
    assert (reader.read, reader.named) == ([(topic, 42)], 0)
    reader.plan.resume([reader.places[7]])
    reader.fetch()
    assert (reader.read, reader.named) == ([(topic, 42), (topic, 7)], 1)
    assert reader.session[0] == session_id


def test_a_session_that_the_broker_has_forgotten_begins_anew(reader: Reader, kafka: Any, make_records: Make) -> None:
    reader.fetch()
    reader.fetch()
    reader.say(session_id=reader.session[0], session_epoch=-1)
    assert reader.fetch() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    kafka.produce(reader.places[3].topic, make_records(b"a"), partition=3)
    assert (reader.fetch(), reader.named, reader.session) == (ErrorCode.NONE, PARTITIONS, (0, 0))
    assert reader.read == [reader.places[3]]


def test_after_an_answer_that_was_lost_the_session_is_replaced(reader: Reader) -> None:
    reader.fetch()
    reader.fetch()
    session_id = reader.session[0]
    reader.say(session_id=session_id, session_epoch=2)  # the broker is one epoch ahead of us
    assert reader.fetch() is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (reader.fetch(), reader.named, reader.session) == (ErrorCode.NONE, PARTITIONS, (session_id, 0))
    assert reader.fetch() is ErrorCode.NONE
    assert reader.say(session_id=session_id, session_epoch=3).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_last_request_ends_the_session(reader: Reader) -> None:
    reader.fetch()
    reader.fetch()
    session_id = reader.session[0]
    (body,) = reader.plan.close().values()
    assert reader.say(**body).error_code == ErrorCode.NONE
    assert reader.say(session_id=session_id, session_epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
