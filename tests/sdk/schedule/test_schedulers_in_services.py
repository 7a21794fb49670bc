"""Schedulers inside services: members of their schedule's group that are killed, or stopped and go on as zombies.

Each is a process with an app of its shell, whose handler takes what is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from dead_members import forget_members
from killed_services import KilledService
from wire_client import WireClient

from ottla import Json, Producer
from ottla.schedule.headers import TOPIC_PREFIX
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, wait_until
from ottla_wire.protocol import ApiKey

SERVICE = """
import asyncio, os, signal, sys
from ottla import App, CommitPolicy, Json, Record
from ottla.schedule.slot import WriteBatch
from ottla.schedule import slot_work
from ottla.wire_client.producing import batch_transactions

shell, servers, group, schedule, topic, trap, journal = sys.argv[1:]
out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
app = App(
    group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.1), scheduler=schedule,
    settings={"heartbeat.interval.ms": 200, "session.timeout.ms": 6000},
)
answer, end = slot_work.SlotWork._answer, batch_transactions.end_transaction
delivers = False

def answering(self, asked):
    global delivers
    delivers = isinstance(asked, WriteBatch) and len(asked.deliver) > 0
    return answer(self, asked)

def ending(*arguments):
    if delivers:  # all is written, and nothing is committed
        try:
            os.rename(trap, trap + "-" + str(os.getpid()))
        except FileNotFoundError:
            pass
        else:
            signal.raise_signal(getattr(signal, open(trap + "-" + str(os.getpid())).read()))
    return end(*arguments)

slot_work.SlotWork._answer, batch_transactions.end_transaction = answering, ending

@app.handler(topic, value=Json())
def handle(record: Record[int]) -> None:
    os.write(out, f"{record.value}\\n".encode())

if shell == "threads":
    app.run()
else:
    asyncio.run(app.serve(handle_signals=True))
"""

T = TypeVar("T")

ROUND = 60
"""Messages per round; they fall due over a second and a half, two of them are cancelled."""


class Schedule:
    """A schedule whose messages are counted: what was sent, what was cancelled in time, what came of it."""

    def __init__(self, kafka: Kafka, name: str, topic: str) -> None:
        self.kafka = kafka
        self.group = TOPIC_PREFIX + name
        self._topic = topic
        self._sent = 0
        self._cancelled: set[int] = set()
        with Scheduler(kafka.bootstrap_servers, name=name, assigned=()):
            pass  # it makes the schedule
        self.producer: Producer[Any, Any] = Producer(kafka.bootstrap_servers, value=Json(), key=str, schedule=name)

    def send_round(self) -> None:
        first = self._sent
        for number in range(first, first + ROUND):
            is_cancelled = number % (ROUND // 2) == 7
            after_s = 60.0 if is_cancelled else 0.3 + (number - first) / 50
            self.producer.send(self._topic, number, key=str(number), deliver_after=after_s, schedule_id=str(number))
            if is_cancelled:
                self._cancelled.add(number)
        self._sent += ROUND
        self.producer.flush()
        for number in self._cancelled:
            if number >= first:
                self.producer.cancel(str(number)).result(30)

    def delivered(self) -> list[int]:
        return [int(record.value) for record in self.kafka.consume_all(self._topic)]

    @property
    def due(self) -> set[int]:
        return set(range(self._sent)) - self._cancelled

    def check(self) -> None:
        records = self.kafka.consume_all(self._topic)
        assert sorted(int(record.value) for record in records) == sorted(self.due)
        early = [
            record for record in records if record.timestamp_ms < int(record.header_text("ottla-scheduled-due") or 0)
        ]
        assert early == []

    def members(self) -> int:
        """How many schedulers share the slots; 0 until their group has settled."""
        client = WireClient(self.kafka.bootstrap_servers)
        try:
            (found,) = client.call(
                ApiKey.DESCRIBE_GROUPS, 5, {"groups": [self.group], "include_authorized_operations": False}
            ).groups
        finally:
            client.close()
        return sum(bool(member.member_assignment) for member in found.members) * (found.group_state == "Stable")


def soon(condition: Callable[[], T | None]) -> T:
    found = wait_until(condition, 60, interval_s=0.05)
    assert found is not None
    return found


@pytest.mark.representative("asyncio")
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("shell", ["threads", "asyncio"])
def test_one_that_is_killed_or_paused_amid_a_delivery_has_a_successor_and_nothing_comes_twice(
    shell: str, kafka: Kafka, kafka_group: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    schedule = Schedule(kafka, kafka_group, topic)
    trap = tmp_path / "trap"
    services: list[KilledService] = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        arguments = (shell, kafka.bootstrap_servers, kafka_group, kafka_group, topic, str(trap))
        place: Any = {"bootstrap_servers": kafka.bootstrap_servers, "group": kafka_group, "folder": folder}
        services.append(KilledService(SERVICE, *arguments, **place))

    def caught() -> KilledService | None:
        return next((service for service in services if service.state() in ("T", "Z")), None)

    with schedule.producer, services[0], services[1]:
        for fault in ("SIGKILL", "SIGSTOP"):
            soon(lambda: schedule.members() == 2)
            trap.write_text(fault)
            schedule.send_round()
            service = soon(caught)
            before = set(schedule.delivered())
            assert before < schedule.due
            for group in (kafka_group, schedule.group):  # who lives joins again at its next heartbeat
                forget_members(kafka.bootstrap_servers, group)
            soon(lambda: set(schedule.delivered()) == schedule.due)
            if fault == "SIGKILL":
                service.kill()
                service.start()
            else:
                service.go_on()  # it still takes its slots for its own, and commits
        soon(lambda: schedule.members() == 2)
        schedule.send_round()
        soon(lambda: set(schedule.delivered()) == schedule.due)
        soon(lambda: {int(line) for service in services for line in service.lines()} == schedule.due)
    schedule.check()
