"""`App.every`: what it declares, what it refuses, and its runs without a broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ottla import App, ConfigError, RetryPolicy, Router, TaskRun
from ottla.app.app import declarations_of
from ottla.schedule.tasks.task_records import NEVER_EXPIRES, Definition
from ottla.testing import consumer_for


def declared(app: App) -> list[Definition]:
    tasks = declarations_of(app).tasks
    assert tasks is not None
    return tasks.definitions


def test_what_is_declared() -> None:
    app = App("billing", scheduler=True)

    @app.every("0 8 * * mon-fri", tz="Europe/Berlin", id="daily-report", missed="all", version="1.10")
    def daily_report() -> None: ...

    @app.every(timedelta(minutes=5), id="poll", expires_after=60, topic="polls", schedule="other")
    def poll() -> None: ...

    @app.every(30, id="ping", expires_after="never")
    def ping() -> None: ...

    report, ping_task, poll_task = declared(app)
    assert report == Definition(
        id="billing/daily-report",
        version=(1, 10),
        topic="billing.daily-report",
        missed="all",
        cron="0 8 * * mon-fri",
        tz="Europe/Berlin",
    )
    assert (poll_task.topic, poll_task.every_ms, poll_task.expires_after_ms) == ("polls", 300_000, 60_000)
    assert (ping_task.every_ms, ping_task.expires_after_ms) == (30_000, NEVER_EXPIRES)
    assert {name: len(tasks) for name, tasks in declarations_of(app).tasks.by_schedule.items()} == {  # type: ignore[union-attr]
        "default": 2,
        "other": 1,
    }
    assert declarations_of(app).topics_to_create(True).keys() == {"billing.daily-report", "billing.ping", "polls"}


def test_a_later_version_is_compared_number_by_number() -> None:
    def of(version: str, cron: str = "* * * * *") -> Definition:
        return Definition(id="g/t", version=tuple(map(int, version.split("."))), topic="t", cron=cron)

    assert of("1.10").replaces(of("1.9", "0 * * * *"))
    assert not of("1.9").replaces(of("1.10", "0 * * * *"))
    assert of("1.9").replaces(of("1.9", "0 * * * *"))
    assert not of("1.9").replaces(of("1.9"))
    assert of("1.9").replaces(None)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_is_a_record_with_retries_and_dead_letters(is_async: bool) -> None:
    app = App("billing", scheduler=True, dead_letter_topic="dead", retry=RetryPolicy(max_attempts=3))
    seen: list[TaskRun] = []

    def report(run: TaskRun) -> None:
        seen.append(run)
        if run.is_triggered:
            raise ValueError("no data")

    async def report_async(run: TaskRun) -> None:
        report(run)

    app.every("0 8 * * *", id="report")(report_async if is_async else report)
    consumer = consumer_for(app)
    run = TaskRun(id="billing/report", due_ms=1_800_000_000_000, dispatched_ms=1_800_000_000_100)
    assert consumer.deliver(run).outcome == "done"
    assert seen == [run]
    assert run.due == datetime(2027, 1, 15, 8, tzinfo=UTC)
    failed = consumer.deliver(TaskRun(id="billing/report", due_ms=1, dispatched_ms=2, is_triggered=True))
    assert (failed.outcome, failed.attempts) == ("dead", 3)


def test_a_run_that_came_too_late_is_passed_over() -> None:
    app = App("billing", scheduler=True)
    app.every("0 8 * * *", id="report")(lambda: None)
    consumer = consumer_for(app)
    run = TaskRun(id="billing/report", due_ms=1, dispatched_ms=2)
    expired = [("ottla-expires-at", b"%d" % (consumer.clock.now_ms() - 1))]
    assert consumer.deliver(run, headers=expired).outcome == "expired"


def test_a_router_declares_tasks_of_the_app_that_includes_it() -> None:
    router = Router()

    @router.every("0 8 * * *", id="report")
    def report() -> None: ...

    app = App("billing", scheduler="nightly")
    app.include(router)
    assert [task.id for task in declared(app)] == ["billing/report"]
    assert [*declarations_of(app).tasks.by_schedule] == ["nightly"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"times": "0 8 * *"}, "wanted five fields"),
        ({"times": 0.5}, "the interval must be at least 1 second, got 0.5"),
        ({"times": 0}, "the interval must be at least 1 second, got 0"),
        ({"times": 10**9}, "the interval must be at most 31,622,400 seconds"),
        ({"times": None}, "the interval must be a number of seconds or a timedelta"),
        ({"times": 60, "tz": "Mars/Olympus"}, "found tz='Mars/Olympus' with an interval"),
        ({"tz": "Mars/Olympus"}, "tz: found 'Mars/Olympus'"),
        ({"tz": None}, "tz: found None"),
        ({"id": "a/b"}, "id: found 'a/b'"),
        ({"id": ""}, "id: found ''"),
        ({"missed": "some"}, "missed: found 'some', wanted 'one', 'all' or 'none'"),
        ({"expires_after": "soon"}, "expires_after: found 'soon'"),
        ({"expires_after": 0}, "expires_after must be more than 0"),
        ({"version": "1.x"}, "version: found '1.x'"),
        ({"version": True}, "version: found True"),
        ({"version": -1}, "version: found -1"),
        ({"topic": "a b"}, "topic: "),
        ({"schedule": "a b"}, "schedule: "),
        ({"batch": True}, "batch"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], found: str) -> None:
    given = {"times": "0 8 * * *", "id": "report", **options}
    with pytest.raises(ConfigError) as caught:
        App("billing", scheduler=True).every(given.pop("times"), **given)(lambda: None)
    assert found in str(caught.value)


def test_a_task_needs_a_scheduler_a_name_of_its_own_and_a_group_that_is_a_topic() -> None:
    with pytest.raises(ConfigError, match=r"found no scheduler, wanted App\(..., scheduler=True\)"):
        App("billing").every("0 8 * * *", id="report")
    app = App("billing", scheduler=True)
    app.every("0 8 * * *", id="report")(lambda: None)
    with pytest.raises(ConfigError, match="has a task with this id already"):
        app.every("0 9 * * *", id="report")(lambda: None)
    with pytest.raises(ConfigError, match="name one: topic="):
        App("billing (new)", scheduler=True).every("0 8 * * *", id="report")
