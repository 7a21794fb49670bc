"""A producer that schedules messages tells when no scheduler is there to deliver them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.producer import schedulers
from ottla.producer.schedulers import EVERY_MS, FIRST_LOOK_MS, SchedulerWatch
from ottla.schedule.headers import TOPIC_PREFIX
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, wait_until
from tests.kit.both_shells import PRODUCERS

GROUP = TOPIC_PREFIX + "billing"


def test_a_schedule_is_looked_at_when_its_scheduler_has_had_time_to_start_and_then_now_and_then() -> None:
    watch = SchedulerWatch()
    watch.watch("orders", now_ms=0)
    watch.watch(GROUP + ".dead-letters", now_ms=0)
    assert watch.next_due_ms() is None
    watch.watch(GROUP, now_ms=1_000)
    watch.watch(GROUP, now_ms=9_000)
    assert watch.next_due_ms() == 1_000 + FIRST_LOOK_MS
    assert watch.due(999 + FIRST_LOOK_MS) == []
    assert watch.due(2_000 + FIRST_LOOK_MS) == [GROUP]
    assert watch.due(2_000 + FIRST_LOOK_MS) == []
    assert watch.next_due_ms() == 2_000 + FIRST_LOOK_MS + EVERY_MS


def test_it_is_told_once_each_time_that_they_are_gone() -> None:
    watch = SchedulerWatch()
    states = ["EMPTY", "DEAD", None, "PREPARING_REBALANCE", "STABLE", None, "EMPTY", "EMPTY"]
    assert [watch.on_state(GROUP, state) for state in states] == [True, *[False] * 5, True, False]


@pytest.mark.parametrize("shell", ["threads", "asyncio"])
async def test_both_shells_tell_it_until_a_scheduler_runs_and_again_when_it_has_gone(
    shell: str,
    kafka: Kafka,
    make_topic: Callable[..., str],
    kafka_group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedulers, "FIRST_LOOK_MS", 0)
    monkeypatch.setattr(schedulers, "EVERY_MS", 50)
    states: list[str | None] = []
    on_state = SchedulerWatch.on_state

    def hearing(self: SchedulerWatch, group: str, state: str | None) -> bool:
        states.append(state)
        return on_state(self, group, state)

    monkeypatch.setattr(SchedulerWatch, "on_state", hearing)
    topic, group = make_topic(), TOPIC_PREFIX + kafka_group
    with Scheduler(kafka.bootstrap_servers, name=kafka_group, assigned=()):
        pass  # it makes the schedule
    captured: list[Any]
    with capture_logs() as captured:

        async def until(condition: Callable[[], object]) -> None:
            await asyncio.to_thread(wait_until, condition, 60)

        def told() -> list[Any]:
            return [event for event in captured if event["event"] == "no_scheduler"]

        async with PRODUCERS[shell](kafka.bootstrap_servers, schedule=kafka_group) as producer:
            producer.send(topic, b"v")
            await producer.flush()
            assert states == [], "nobody asks where nothing is scheduled"
            producer.send(topic, b"v", deliver_after=600)
            await until(lambda: len(states) >= 3)
            assert set(states) == {"DEAD"}
            (event,) = told()
            assert (event["schedule"], event["log_level"]) == (group, "warning")
            assert f"ottla schedule run --name {kafka_group}" in event["hint"]

            scheduler = Scheduler(kafka.bootstrap_servers, name=kafka_group)
            scheduler.start()
            thread = threading.Thread(target=scheduler.run)
            thread.start()
            try:
                await until(lambda: "STABLE" in states)
                assert len(told()) == 1
            finally:
                scheduler.stop()
                await asyncio.to_thread(thread.join, 60)
            await until(lambda: len(told()) == 2)
