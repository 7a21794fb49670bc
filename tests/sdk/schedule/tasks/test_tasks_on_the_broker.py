"""Recurring tasks over the embedded broker, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ottla import App, ConfigError, TaskRun, TopicSpec
from ottla.schedule.owner_transactions import OwnerTransactions
from ottla.schedule.slot import WriteRefused
from ottla.schedule.slot_batches import Batches
from ottla.schedule.tasks.task_records import Definition, pause_record, removal_record, tasks_topic, trigger_record
from ottla.sync.serve.scheduler import Scheduler
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import wait_until
from tests.kit.virtual_schedule import Setup, settle, virtual_setup

TOPIC = tasks_topic("default")
HOUR_MS = 3_600_000


@pytest.fixture
def setup() -> Iterator[Setup]:
    with virtual_setup() as made:
        made.clock.advance(seconds=(HOUR_MS - made.clock.now_ms() % HOUR_MS) // 1_000 + 60)  # a minute past the hour
        yield made


def hourly(**changes: Any) -> Definition:
    fields: dict[str, Any] = {"id": "g/hourly", "version": (1,), "topic": "runs", "cron": "0 * * * *", **changes}
    return Definition(**fields)


def declare(setup: Setup, *definitions: Definition) -> None:
    register_tasks(setup.cluster.bootstrap_servers, "default", definitions, settings={})


def request(setup: Setup, record: tuple[bytes, bytes | None]) -> None:
    with setup.producer() as producer:
        producer.send(TOPIC, record[1], key=record[0]).result()


def due_minutes(setup: Setup) -> list[int]:
    """Minutes since 1970 at which the runs were due, in their order."""
    records = setup.kafka.consume_all("runs")
    return [int(record.header_text("ottla-scheduled-due") or 0) // 60_000 for record in records]


def due_hours(setup: Setup) -> list[int]:
    return [minute // 60 for minute in due_minutes(setup)]


def tick_until(scheduler: Scheduler, condition: Callable[[], Any]) -> None:
    clock: Any = scheduler._clock

    def met() -> Any:
        clock.advance(seconds=1)  # requests are looked for once a second
        scheduler.tick()
        return condition()

    wait_until(met, 12, what="a condition of the tasks")


def knows(scheduler: Scheduler, id: str = "g/hourly") -> Callable[[], bool]:
    """It has taken the task, and written its state."""

    def is_known() -> bool:
        task = scheduler._works[scheduler._tasks].tasks.tasks.get(id) if scheduler._tasks in scheduler._works else None
        return task is not None and task.state is not None and not task.requests

    return is_known


def test_each_due_time_is_run_once_in_its_hour(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    first = setup.clock.now_ms() // HOUR_MS + 1
    for hour in range(5):
        setup.clock.advance(hours=1)
        settle(scheduler, "runs", hour + 1, setup)
    assert due_hours(setup) == [*range(first, first + 5)]
    scheduler.close()


@pytest.mark.complete
def test_a_run_says_which_it_is_and_expires_at_the_next_one(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    setup.clock.advance(hours=1)
    (record,) = settle(scheduler, "runs", 1, setup)
    scheduler.close()
    due_ms = int(record.header_text("ottla-scheduled-due") or 0)
    assert record.raw_key == b"g/hourly"
    assert record.header_text("ottla-id") == f"g/hourly@{due_ms}"
    assert record.header_text("ottla-expires-at") == str(due_ms + HOUR_MS)
    assert record.value == b'{"id":"g/hourly","due_ms":%d,"dispatched_ms":%d,"is_triggered":false}' % (
        due_ms,
        record.timestamp_ms,
    )
    assert due_ms <= record.timestamp_ms < due_ms + 10_000 + HOUR_MS


@pytest.mark.complete
@pytest.mark.parametrize(
    ("missed", "wanted"), [("one", [4]), ("all", [1, 2, 3, 4]), ("none", [])], ids=["one", "all", "none"]
)
def test_what_passed_without_a_scheduler_is_run_as_declared(setup: Setup, missed: Any, wanted: list[int]) -> None:
    setup.create("runs")
    first = setup.clock.now_ms() // HOUR_MS
    declare(setup, hourly(missed=missed))
    setup.clock.advance(hours=4, minutes=30)
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    assert [hour - first for hour in due_hours(setup)] == wanted
    setup.clock.advance(seconds=(HOUR_MS - setup.clock.now_ms() % HOUR_MS) // 1_000 + 1)
    settle(scheduler, "runs", len(wanted) + 1, setup)
    assert [hour - first for hour in due_hours(setup)] == [*wanted, 5]
    expires = [record.header_text("ottla-expires-at") for record in setup.kafka.consume_all("runs")]
    assert (expires == [None] * 5) is (missed == "all"), "runs that are made up for would expire at once"
    scheduler.close()


@pytest.mark.complete
def test_a_changed_expression_replaces_the_task_and_an_older_version_does_not(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly(version=(1, 9), missed="all"))
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    first = setup.clock.now_ms() // HOUR_MS
    declare(setup, hourly(version=(1, 10), missed="all", cron="0 */6 * * *"))
    declare(setup, hourly(version=(1, 9), missed="all"))  # a process of the earlier release starts again
    for _ in range(12):
        setup.clock.advance(hours=1)
        tick_until(scheduler, knows(scheduler))
    settle(scheduler, "runs", 2, setup)
    assert [hour for hour in range(first + 1, first + 13) if hour % 6 == 0] == due_hours(setup)
    # The same version with another expression.
    declare(setup, hourly(version=(1, 10), missed="all", cron="30 */6 * * *"))
    setup.clock.advance(hours=6)
    record = settle(scheduler, "runs", 3, setup)[-1]
    assert int(record.header_text("ottla-scheduled-due") or 0) // 60_000 % 60 == 30
    scheduler.close()


@pytest.mark.complete
def test_a_task_that_is_declared_again_goes_on_as_it_was(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    first = setup.clock.now_ms() // HOUR_MS
    setup.clock.advance(minutes=50)
    scheduler.close()
    setup.clock.advance(minutes=30)
    declare(setup, hourly())  # behind the due time, and before a scheduler is there
    scheduler = setup.scheduler()
    settle(scheduler, "runs", 1, setup)
    assert due_hours(setup) == [first + 1]
    scheduler.close()


@pytest.mark.complete
def test_a_pause_and_a_removal_that_were_acknowledged_in_time_are_honoured(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    first = setup.clock.now_ms() // HOUR_MS
    setup.clock.advance(minutes=59 - setup.clock.now_ms() // 60_000 % 60)
    request(setup, pause_record("g/hourly", is_paused=True))
    setup.clock.advance(hours=3)
    tick_until(scheduler, knows(scheduler))
    assert due_hours(setup) == []
    request(setup, pause_record("g/hourly", is_paused=False))
    setup.clock.advance(hours=1)
    settle(scheduler, "runs", 1, setup)
    assert due_hours(setup) == [first + 4], "nothing is made up for"
    request(setup, removal_record("g/hourly"))
    setup.clock.advance(hours=1)
    tick_until(scheduler, lambda: not scheduler._works[scheduler._tasks].tasks.tasks)
    scheduler.close()
    successor = setup.scheduler()
    setup.clock.advance(hours=1)
    tick_until(successor, lambda: successor._works[successor._tasks].tasks._has_read)
    assert due_hours(setup) == [first + 4]
    successor.close()


@pytest.mark.complete
def test_a_pause_concerns_the_due_times_behind_it(setup: Setup) -> None:
    """A scheduler that comes late dispatches what was due before."""
    setup.create("runs")
    first = setup.clock.now_ms() // HOUR_MS
    declare(setup, hourly(missed="all"))
    setup.clock.advance(hours=2, minutes=30)
    request(setup, pause_record("g/hourly", is_paused=True))
    setup.clock.advance(hours=2)
    request(setup, pause_record("g/hourly", is_paused=False))
    setup.clock.advance(hours=1)
    declare(setup, hourly(missed="all", cron="15 * * * *"))
    setup.clock.advance(hours=1)
    scheduler = setup.scheduler()
    settle(scheduler, "runs", 4, setup)
    tick_until(scheduler, knows(scheduler))
    minutes = [
        int(r.header_text("ottla-scheduled-due") or 0) // 60_000 - first * 60 for r in setup.kafka.consume_all("runs")
    ]
    assert minutes == [60, 120, 300, 375]
    scheduler.close()


@pytest.mark.complete
def test_a_trigger_is_one_run_more(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    request(setup, pause_record("g/hourly", is_paused=True))
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    request(setup, trigger_record("g/hourly", "n1"))
    request(setup, trigger_record("g/unknown", "n2"))
    tick_until(scheduler, lambda: len(setup.kafka.consume_all("runs")) == 1)
    (record,) = setup.kafka.consume_all("runs")
    assert b'"is_triggered":true' in (record.raw_value or b"")
    assert record.header_text("ottla-id") == "trigger g/hourly n1"
    scheduler.close()
    successor = setup.scheduler()
    tick_until(successor, knows(successor))
    setup.clock.advance(seconds=5)
    tick_until(successor, knows(successor))
    assert len(setup.kafka.consume_all("runs")) == 1
    successor.close()


@pytest.mark.representative("before the commit")
@pytest.mark.parametrize("dies", ["before the commit", "behind the commit"])
def test_a_scheduler_that_dies_as_it_dispatches_leaves_no_gap_and_no_double(
    setup: Setup, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.create("runs")
    declare(setup, hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    first = setup.clock.now_ms() // HOUR_MS

    class Died(Exception):
        pass

    commit = OwnerTransactions.commit

    def dying(self: Any, batches: Batches) -> WriteRefused | None:
        if "runs" not in batches.planned():
            return commit(self, batches)
        if dies == "behind the commit":
            commit(self, batches)
        raise Died

    def dead() -> bool:
        try:
            scheduler.tick()
        except Died:
            return True
        return False

    setup.clock.advance(hours=1)
    with monkeypatch.context() as patch:
        patch.setattr(OwnerTransactions, "commit", dying)
        wait_until(dead, 30, what="its death")
    successor = setup.scheduler()  # the first one is not closed: it lives on as a zombie
    settle(successor, "runs", 1, setup)
    for _ in range(3):
        scheduler.tick()
        successor.tick()
    setup.clock.advance(hours=1)
    for _ in range(3):
        scheduler.tick()  # it is fenced
    settle(successor, "runs", 2, setup)
    assert due_hours(setup) == [first + 1, first + 2]
    for each in (scheduler, successor):
        each.close()


@pytest.mark.complete
def test_a_run_that_cannot_be_written_is_named_and_delays_no_other_task(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly(id="g/lost", topic="nowhere"), hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    setup.clock.advance(hours=1)
    settle(scheduler, "runs", 1, setup)
    tick_until(scheduler, lambda: "nowhere" in " ".join(scheduler.health().problems))
    assert any(
        problem.startswith("task g/lost is not dispatched: UnknownTopic") for problem in scheduler.health().problems
    )
    setup.create("nowhere")

    def dispatched() -> bool:
        setup.clock.advance(seconds=6)
        return len(setup.kafka.consume_all("nowhere")) == 1

    tick_until(scheduler, dispatched)
    tick_until(scheduler, lambda: scheduler.health().is_ready)
    scheduler.close()


@pytest.mark.complete
def test_records_that_nobody_can_read_end_no_scheduler(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    with setup.producer() as producer:
        for key in (b"definition g/a", b"state g/a", b"trigger", b"trigger \xff x", b"pause \xff", b"\xff"):
            for value in (b"[" * 2_000, b"{}", b"\xff", b"x" * 20_000, b"null", b'{"version":[]}', None):
                producer.send(TOPIC, value, key=key).result()
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    setup.clock.advance(hours=1)
    settle(scheduler, "runs", 1, setup)
    assert scheduler._works[scheduler._tasks].owned.unreadable > 10
    scheduler.close()


@pytest.mark.complete
def test_a_time_zone_that_the_scheduler_does_not_have_keeps_the_earlier_declaration(setup: Setup) -> None:
    setup.create("runs")
    declare(setup, hourly())
    scheduler = setup.scheduler()
    tick_until(scheduler, knows(scheduler))
    declare(setup, hourly(tz="Europe/Bielefeld"), hourly(id="g/other"))
    tick_until(scheduler, lambda: "Bielefeld" in " ".join(scheduler.health().problems))
    tick_until(scheduler, knows(scheduler, "g/other"))
    setup.clock.advance(hours=1)
    settle(scheduler, "runs", 1, setup)
    scheduler.close()


@pytest.mark.complete
def test_an_app_logs_which_of_its_tasks_are_outdated_and_which_it_does_not_declare(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(setup, hourly(version=(1, 10)), hourly(id="g/old"), hourly(id="other/old"))
    capsys.readouterr()
    declare(setup, hourly(version=(1, 9)))
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines() if '"task_' in line]
    fields = [{name: value for name, value in event.items() if name not in ("timestamp", "level")} for event in events]
    assert sorted(fields, key=str) == [
        {"event": "task_outdated", "task": "g/hourly", "version": "1.9", "found_version": "1.10"},
        {"event": "task_undeclared", "task": "g/old", "hint": "ottla schedule remove g/old --name default"},
    ]


@pytest.mark.complete
@pytest.mark.parametrize(
    ("partitions", "config", "found"),
    [
        (3, {}, "found 3 partitions, wanted 1"),
        (1, {"cleanup.policy": "delete"}, "found cleanup.policy=delete, wanted compact"),
        (1, {"cleanup.policy": "compact"}, "found message.timestamp.type=CreateTime, wanted LogAppendTime"),
    ],
)
def test_a_topic_that_would_lose_tasks_is_refused(
    setup: Setup, partitions: int, config: dict[str, str], found: str
) -> None:
    setup.cluster.create_topic(TOPIC, partitions=partitions, config=config)
    with pytest.raises(ConfigError, match=found):
        declare(setup, hourly())


# In apps


@pytest.mark.representative("threads")
@pytest.mark.parametrize("shell", ["threads", "asyncio"])
def test_an_app_declares_its_tasks_and_runs_them(kafka: Any, kafka_group: str, shell: str) -> None:
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        scheduler=kafka_group,
        create_topics={f"{kafka_group}.often": TopicSpec(partitions=1, replication_factor=1)},
        settings={"auto.offset.reset": "earliest"},
    )
    ran: list[TaskRun] = []

    def often(run: TaskRun) -> None:
        note(run)

    async def often_async(run: TaskRun) -> None:
        note(run)

    def note(run: TaskRun) -> None:
        ran.append(run)
        if len(ran) == 3:
            app.stop()

    app.every(1, id="often", expires_after="never")(often if shell == "threads" else often_async)
    if shell == "threads":
        app.run(handle_signals=False)
    else:
        asyncio.run(app.serve(handle_signals=False))
    due = [run.due_ms for run in ran[:3]]
    assert due == [due[0], due[0] + 1_000, due[0] + 2_000]
    assert ran[0].id == f"{kafka_group}/often"
    assert ran[0].due == datetime.fromtimestamp(due[0] / 1_000, UTC)
