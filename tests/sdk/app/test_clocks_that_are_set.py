"""The clock of a host is wrong when a service starts, and is set while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import App, Json, RetryPolicy
from ottla.clock import SystemClock

SHELLS = ["threads", "asyncio", "columns"]
HOUR_MS = 3_600_000


@pytest.fixture
def wrong_by() -> Iterator[list[int]]:
    """By how many milliseconds the wall clock of this process is wrong."""
    by = [0]
    right = SystemClock.now_ms
    SystemClock.now_ms = lambda self: right(self) + by[0]  # type: ignore[method-assign]
    yield by
    SystemClock.now_ms = right  # type: ignore[method-assign]


def test_times_of_dead_letters_are_right_once_the_clock_is(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None], wrong_by: list[int]
) -> None:
    wrong_by[0] = -HOUR_MS
    dead = f"{kafka_topic}.dead"
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, dead_letter_topic=dead, create_topics=True)
    seen: list[int] = []

    @app.handler(kafka_topic, value=Json(), retry=RetryPolicy(max_attempts=1))
    def handle(value: int) -> None:
        seen.append(value)
        if value:
            raise ValueError("never")

    shell.start(app)
    kafka.produce(kafka_topic, [0], value=Json())
    wait(lambda: seen == [0], timeout_s=30)
    wrong_by[0] = 0
    (member,) = app.runner.members.values()
    wait(lambda: abs(member._session.epoch_offset_ms - (time.time() - time.monotonic()) * 1_000) < 1_000)
    kafka.produce(kafka_topic, [1], value=Json())
    (letter,) = kafka.consume_all(dead, at_least=1, timeout_s=40)
    shell.stop(app)

    headers = dict(letter.headers or ())
    for name in ("ottla-dlq-first-failure", "ottla-dlq-dead-lettered"):
        assert abs(int(headers[name]) - time.time() * 1_000) < 60_000, name
