"""Recurring tasks of services whose scheduler is killed, or paused, around the commit of a run and its next due time.

Each service is a process with an app of its shell, which declares the task, dispatches it, and handles its runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dead_members import forget_members
from killed_services import KilledService

from broker_embedded.cluster import EmbeddedCluster
from ottla.schedule.headers import TOPIC_PREFIX
from ottla.schedule.tasks.task_records import Definition, tasks_topic
from ottla.sync.serve.scheduler import Scheduler
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import Kafka, wait_until

SERVICE = """
import asyncio, os, signal, sys
from ottla import App, CommitPolicy, TaskRun
from ottla.schedule.tasks.owned_tasks import WriteTasks
from ottla.schedule.tasks.task_work import TaskWork
from ottla.wire_client.producing import batch_transactions

shell, servers, group, topic, trap, journal = sys.argv[1:]
out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
app = App(
    group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.1), scheduler=group,
    settings={"heartbeat.interval.ms": 200, "session.timeout.ms": 6000, "auto.offset.reset": "earliest"},
)
answer, end = TaskWork._answer, batch_transactions.end_transaction
dispatches = False

def answering(self, asked):
    global dispatches
    dispatches = isinstance(asked, WriteTasks) and any(write.runs for write in asked.writes)
    return answer(self, asked)

def caught(place):
    try:
        os.rename(trap, trap + "-" + str(os.getpid()))
    except FileNotFoundError:
        return
    name, _, wanted = open(trap + "-" + str(os.getpid())).read().partition(" ")
    if wanted == place:
        signal.raise_signal(getattr(signal, name))
    else:
        os.rename(trap + "-" + str(os.getpid()), trap)

def ending(*arguments):
    if dispatches:
        caught("before")  # run and next due time are written, and not committed
    result = end(*arguments)
    if dispatches:
        caught("behind")  # they are committed, and this owner does not know
    return result

TaskWork._answer, batch_transactions.end_transaction = answering, ending

def note(run):
    os.write(out, f"{run.due_ms}\\n".encode())

async def note_async(run: TaskRun) -> None:
    note(run)

def note_threads(run: TaskRun) -> None:
    note(run)

app.every(1, id="often", missed="all", topic=topic)(note_threads if shell == "threads" else note_async)
if shell == "threads":
    app.run()
else:
    asyncio.run(app.serve(handle_signals=True))
"""


@pytest.mark.complete
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shell", ["threads", "asyncio"])
def test_whatever_happens_around_the_commit_each_due_time_is_run_once(
    shell: str, kafka: Kafka, kafka_group: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, trap = make_topic(), tmp_path / "trap"
    services: list[KilledService] = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        place: Any = {"bootstrap_servers": kafka.bootstrap_servers, "group": kafka_group, "folder": folder}
        arguments = (shell, kafka.bootstrap_servers, kafka_group, topic, str(trap))
        services.append(KilledService(SERVICE, *arguments, **place))

    def due() -> list[int]:
        records = kafka.consume_all(topic)
        return [int(record.header_text("ottla-scheduled-due") or 0) for record in records]

    def caught() -> KilledService | None:
        return next((service for service in services if service.state() in ("T", "Z")), None)

    def more_than(count: int) -> None:
        wait_until(lambda: len(due()) >= count, 90, interval_s=0.2, what=f"{count} runs")

    with services[0], services[1]:
        more_than(2)
        for fault in ("SIGKILL before", "SIGKILL behind", "SIGSTOP before", "SIGSTOP behind"):
            trap.write_text(fault)
            service = wait_until(caught, 60, interval_s=0.05, what=fault)
            assert service is not None
            before = len(due())
            for group in (kafka_group, TOPIC_PREFIX + kafka_group):  # who lives joins again at its next heartbeat
                forget_members(kafka.bootstrap_servers, group)
            more_than(before + 3)
            if fault.startswith("SIGKILL"):
                service.kill()
                service.start()
            else:
                service.go_on()  # it still takes itself for the owner, and commits
            more_than(before + 5)
        found = due()

        def handled() -> set[int]:
            return {int(line) for service in services for line in service.lines()}

        wait_until(lambda: handled() >= set(found), 60, what="all runs to be handled")
    assert found == [*range(found[0], found[-1] + 1, 1_000)], "once each, without a gap, in order"


@pytest.mark.complete
@pytest.mark.slow
def test_tasks_whose_leader_dies_go_on_with_the_next_one() -> None:
    with EmbeddedCluster(brokers=3, config={"offsets.topic.replication.factor": 3}) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded")
        cluster.create_topic("runs", replication_factor=3)
        often = Definition(id="g/often", version=(1,), topic="runs", missed="all", every_ms=1_000)
        register_tasks(cluster.bootstrap_servers, "default", [often], settings={})

        def due() -> list[int]:
            return [int(record.header_text("ottla-scheduled-due") or 0) for record in kafka.consume_all("runs")]

        with Scheduler(cluster.bootstrap_servers, assigned=[0], replication_factor=3) as scheduler:

            def has_run(times: int) -> bool:
                scheduler.tick()
                return len(due()) >= times

            wait_until(lambda: has_run(2), 60, what="the first runs")
            cluster.kill(cluster.leader(tasks_topic("default"), 0))
            wait_until(lambda: has_run(8), 100, what="more runs")
            wait_until(lambda: has_run(1) and scheduler.health().is_ready, 60, what="a scheduler that is ready")
            found = due()
    assert found == [*range(found[0], found[-1] + 1, 1_000)]
