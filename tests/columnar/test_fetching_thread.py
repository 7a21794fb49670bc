"""The thread that fetches, against a broker that answers by a script."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_broker import Answer, Healthy, ScriptedBroker

from ottla import FlowLimits
from ottla.columnar.serving.fetching import Fetching
from ottla.columnar.serving.rows import ArrowRows
from ottla.records import TopicPartition
from ottla.testing.waiting import wait_until
from ottla.wire_client import wire_settings
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records import RecordData, encode_batch

BACKOFF_MS = 200
PATIENCE_S = 20.0
PLACE = TopicPartition("orders", 0)


class Seen:
    """What came of the fetches."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.offsets: list[int] = []
        self.notes: list[str] = []
        self.failed: list[BaseException] = []

    def add(self, to: list[Any], *what: Any) -> None:
        with self._changed:
            to += what
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S), (self.offsets, self.notes, self.failed)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def fetching(broker: ScriptedBroker, seen: Seen) -> Iterator[Fetching]:
    broker.add_topic("orders")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": BACKOFF_MS}
    lock = threading.RLock()

    def deliver(rows: ArrowRows, turn: int, size_bytes: int) -> None:
        seen.add(seen.offsets, *rows.offsets)

    made = Fetching(
        wire_settings(settings).with_changes(fetch_max_wait_ms=50),
        name="fetch",
        lock=lock,
        reset="earliest",
        deliver=deliver,
        most_bytes=FlowLimits().total_bytes,
        free_bytes=lambda: FlowLimits().total_bytes,
        failed=lambda error: seen.add(seen.failed, error),
        note=lambda code, text: seen.add(seen.notes, text),
        topic_gone=lambda name: None,
        partition_failed=lambda place, text: None,
        timed_out=lambda address: None,
        throttled=lambda broker, address, ms: None,
    )
    yield made
    made.stop()
    made.join(PATIENCE_S)


def batch(value: bytes) -> bytes:
    return encode_batch([RecordData(0, 1_000, None, value)])


def test_a_broker_that_fails_for_a_partition_is_asked_again_after_a_pause(
    broker: ScriptedBroker, fetching: Fetching, seen: Seen
) -> None:
    asked_s: list[float] = []

    def fails(request: Any, healthy: Healthy) -> Answer:
        asked_s.append(time.monotonic())
        answer = healthy(request)
        for topic in answer["responses"]:
            for entry in topic["partitions"]:
                entry["error_code"] = ErrorCode.UNKNOWN_SERVER_ERROR
        return answer

    broker.append(*PLACE, batch(b"v"))
    broker.script[ApiKey.FETCH] += [fails] * 3
    fetching.plan.add(PLACE, 0)
    fetching.start()
    seen.wait(lambda: bool(seen.offsets))
    assert seen.offsets == [0]
    assert len(asked_s) == 3
    assert min(b - a for a, b in pairwise(asked_s)) >= BACKOFF_MS / 1_000 * 0.9


class Session:
    """Answers fetches as a broker that remembers what it reads, of one partition that is named as it is here."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.asked: list[tuple[int, int, int]] = []
        """Session id, epoch and how many partitions were named, of each request."""
        self.refuses: ErrorCode | None = None
        self._offset = 0
        broker._fetch, self._plain = self._fetch, broker._fetch  # type: ignore[method-assign]

    def _fetch(self, request: Any) -> Answer:
        named = [entry for topic in request.topics for entry in topic.partitions]
        self.asked.append((request.session_id, request.session_epoch, len(named)))
        if self.refuses is not None:
            code, self.refuses = self.refuses, None
            return {"error_code": code}
        if request.session_epoch == -1:
            return {"error_code": 0, "session_id": 0}
        if named:
            self._offset = named[0].fetch_offset
        entry = {"partition": 0, "fetch_offset": self._offset, "partition_max_bytes": 1_000}
        whole = Message(topics=[Message(topic="orders", partitions=[Message(**entry)])])
        return self._plain(whole) | {"session_id": 7}


Message = SimpleNamespace


def test_the_thread_goes_on_with_a_session_and_ends_it(broker: ScriptedBroker, fetching: Fetching, seen: Seen) -> None:
    session = Session(broker)
    broker.append(*PLACE, batch(b"v"))
    fetching.plan.add(PLACE, 0)
    fetching.start()
    seen.wait(lambda: bool(seen.offsets))
    wait_until(lambda: len(session.asked) > 3)
    fetching.stop()
    fetching.join(PATIENCE_S)
    assert session.asked[:4] == [(0, 0, 1), (7, 1, 1), (7, 2, 0), (7, 3, 0)]
    # Over another connection: the broker may read the last request of the session after the one that ends it.
    assert [asked for asked in session.asked if asked[1] == -1] == [(7, -1, 0)]
    assert (seen.offsets, seen.notes, seen.failed) == ([0], [], [])


def test_the_thread_begins_another_session_at_once_when_its_own_is_gone(
    broker: ScriptedBroker, fetching: Fetching, seen: Seen
) -> None:
    session = Session(broker)
    broker.append(*PLACE, batch(b"v"))
    fetching.plan.add(PLACE, 0)
    fetching.start()
    seen.wait(lambda: seen.offsets == [0])
    wait_until(lambda: len(session.asked) > 3)
    session.refuses = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    wait_until(lambda: session.refuses is None)
    broker.append(*PLACE, batch(b"w"))
    seen.wait(lambda: seen.offsets == [0, 1])
    assert [asked for asked in session.asked if asked[1] == 0] == [(0, 0, 1), (0, 0, 1)]
    assert (seen.notes, seen.failed) == ([], [])


def test_a_follower_that_the_leader_names_is_read_and_leads_back_to_it(
    broker: ScriptedBroker, fetching: Fetching, seen: Seen
) -> None:
    def nearer(request: Any, healthy: Healthy) -> Answer:
        answer = healthy(request)
        for topic in answer["responses"]:
            for entry in topic["partitions"]:
                entry |= {"preferred_read_replica": 2, "records": b""}
        return answer

    def gone(request: Any, healthy: Healthy) -> Answer:
        answer = healthy(request)
        for topic in answer["responses"]:
            for entry in topic["partitions"]:
                entry |= {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "records": b""}
        return answer

    follower = ScriptedBroker()
    try:
        follower.add_topic("orders")
        broker.add_topic("other")
        broker.leaders["other", 0] = 2  # so that it is told of
        broker.ports[2] = follower.port
        broker.script[ApiKey.FETCH].append(nearer)
        follower.append(*PLACE, batch(b"of the follower"))
        fetching.plan.add(PLACE, 0)
        fetching.start()
        seen.wait(lambda: seen.offsets == [0])
        assert broker.count(ApiKey.FETCH) == 1

        follower.script[ApiKey.FETCH].append(gone)
        for value in (b"of the follower", b"of the leader"):
            broker.append(*PLACE, batch(value))
        seen.wait(lambda: seen.offsets == [0, 1])
        assert broker.count(ApiKey.FETCH) > 1
        assert not seen.failed
    finally:
        fetching.stop()
        fetching.join(PATIENCE_S)
        follower.close()
