"""The thread that fetches, against a broker that answers by a script."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from scripted_broker import Answer, Healthy, ScriptedBroker

from ottla.columnar.serving.fetching import Fetching
from ottla.columnar.serving.rows import ArrowRows
from ottla.records import TopicPartition
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

    def deliver(rows: ArrowRows, turn: int) -> None:
        seen.add(seen.offsets, *rows.offsets)

    made = Fetching(
        wire_settings(settings).with_changes(fetch_max_wait_ms=50),
        name="fetch",
        lock=lock,
        reset="earliest",
        deliver=deliver,
        failed=lambda error: seen.add(seen.failed, error),
        note=lambda code, text: seen.add(seen.notes, text),
        partition_failed=lambda place, text: None,
        throttled=lambda broker, ms: None,
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
