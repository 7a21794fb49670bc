"""Schedulers that are killed or paused at each step, clocks that jump, transactions that stay open, leaders that die.

The oracle knows each message by its value: once, never early, never after its cancel, never lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from warm_processes import WarmProcess

from broker_embedded.cluster import EmbeddedCluster
from ottla import Json, Producer
from ottla.schedule.headers import TOPIC_PREFIX
from ottla.schedule.wheel import WHEEL
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, wait_until
from tests.kit.virtual_schedule import ALL, Setup, settle, virtual_setup

pytestmark = pytest.mark.complete

TOPIC = TOPIC_PREFIX + "default"
DAY_MS = 86_400_000

CHILD = """
import os, signal, sys
from ottla.schedule.slot import DeletePrefix, WriteBatch
from ottla.schedule import slot_work
from ottla.sync.serve.scheduler import Scheduler
from ottla.wire_client.producing import batch_transactions

bootstrap, now_ms, what, when, with_signal = sys.argv[1:]
is_armed = False
answer, end = slot_work.SlotWork._answer, batch_transactions.end_transaction


def now(moment):
    global is_armed
    if is_armed and moment == when:
        is_armed = False
        signal.raise_signal(getattr(signal, with_signal))


def answering(self, asked):
    global is_armed
    is_write = isinstance(asked, WriteBatch)
    is_armed = {
        "dispatch": is_write and bool(asked.deliver),
        "roll": is_write and bool(asked.move),
        "delete": isinstance(asked, DeletePrefix),
    }[what]
    now("before")
    found = answer(self, asked)
    now("behind")
    return found


def ending(*arguments):
    now("between")
    return end(*arguments)


slot_work.SlotWork._answer = answering
batch_transactions.end_transaction = ending


class Clock:
    def now_ms(self):
        return int(now_ms)

    monotonic_ms = now_ms


scheduler = Scheduler(bootstrap, assigned=range(64), clock=Clock())
scheduler.start()
while True:
    scheduler.tick()
    print("ticked", flush=True)
"""

STEPS = [
    ("dispatch", "before"),
    ("dispatch", "between"),
    ("dispatch", "behind"),
    ("roll", "before"),
    ("roll", "between"),
    ("roll", "behind"),
    ("delete", "before"),
    ("delete", "behind"),
]


@pytest.fixture
def setup() -> Iterator[Setup]:
    with virtual_setup() as made:
        yield made


class Oracle:
    """What was sent, and what must come of it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.due_ms: dict[int, int] = {}
        self.cancelled: set[int] = set()

    def send(self, producer: Producer[Any, Any], count: int, *, in_ms: int) -> None:
        for _ in range(count):
            number = len(self.due_ms)
            producer.send("t", number, deliver_after=in_ms / 1_000, schedule_id=str(number))
            self.due_ms[number] = self.setup.clock.now_ms() + in_ms
        producer.flush()

    def cancel(self, producer: Producer[Any, Any], number: int) -> None:
        assert self.due_ms[number] > self.setup.clock.now_ms()
        producer.cancel(str(number)).result(60)
        self.cancelled.add(number)

    def due(self, *, by_ms: int) -> int:
        return len(
            [number for number, due_ms in self.due_ms.items() if due_ms <= by_ms and number not in self.cancelled]
        )

    def check(self) -> None:
        records = self.setup.kafka.consume_all("t")
        found = [int(record.value) for record in records]
        assert sorted(found) == sorted(self.due_ms.keys() - self.cancelled)
        assert all(record.timestamp_ms >= self.due_ms[int(record.value)] for record in records)


def child(setup: Setup, what: str, when: str, with_signal: str) -> WarmProcess:
    arguments = [setup.cluster.bootstrap_servers, str(setup.clock.now_ms()), what, when, with_signal]
    return WarmProcess(CHILD, *arguments, stdout=subprocess.PIPE)


def weeks(setup: Setup, scheduler: Scheduler, oracle: Oracle) -> None:
    """Let all that was sent become due, through every slot on its way."""
    last_ms = max(oracle.due_ms.values())
    while setup.clock.now_ms() < last_ms:
        setup.clock.advance(days=2)
        scheduler.tick()
    settle(scheduler, "t", len(oracle.due_ms) - len(oracle.cancelled), setup)
    for _ in range(3):
        scheduler.tick()


@pytest.mark.parametrize(("what", "when"), STEPS)
def test_killed_at_any_step_it_delivers_each_message_once(setup: Setup, what: str, when: str) -> None:
    setup.create("t")
    first = setup.scheduler()  # it makes the schedule
    first.close()
    oracle = Oracle(setup)
    with setup.producer(value=Json(), key=str) as producer:
        oracle.send(producer, 20, in_ms=600_000)
        oracle.send(producer, 20, in_ms=30 * DAY_MS)  # farther than the wheel reaches: they are moved
        oracle.cancel(producer, 3)
        oracle.cancel(producer, 23)
        setup.clock.advance(days=8)
        with child(setup, what, when, "SIGKILL") as dying:
            assert dying.wait(90) == -signal.SIGKILL
        oracle.cancel(producer, 24)
    scheduler = setup.scheduler()
    settle(scheduler, "t", oracle.due(by_ms=setup.clock.now_ms()), setup)
    weeks(setup, scheduler, oracle)
    scheduler.close()
    oracle.check()


@pytest.mark.parametrize(("what", "when"), [("dispatch", "before"), ("dispatch", "between"), ("roll", "between")])
def test_one_that_was_paused_and_goes_on_beside_its_successor_delivers_nothing_twice(
    setup: Setup, what: str, when: str
) -> None:
    setup.create("t")
    setup.scheduler().close()
    oracle = Oracle(setup)
    with setup.producer(value=Json(), key=str) as producer:
        oracle.send(producer, 20, in_ms=600_000)
        oracle.send(producer, 20, in_ms=30 * DAY_MS)
        setup.clock.advance(days=8)
    with child(setup, what, when, "SIGSTOP") as zombie:
        try:
            wait_until(zombie.is_stopped, 90, what="the pause")
            scheduler = setup.scheduler()
            settle(scheduler, "t", 20, setup)
            os.kill(zombie.pid, signal.SIGCONT)
            assert zombie.stdout is not None
            for _ in range(5):  # it writes what it was about to, is fenced, and claims its slots again
                assert zombie.stdout.readline() == "ticked\n"
                scheduler.tick()
        finally:
            zombie.kill()
    weeks(setup, scheduler, oracle)
    scheduler.close()
    oracle.check()


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_clock_that_jumps_by_an_hour_makes_nothing_early_and_loses_nothing(setup: Setup, step_ms: int) -> None:
    setup.create("t")
    error_ms = 0
    true_clock = setup.clock

    class Jumping:
        def now_ms(self) -> int:
            now: int = true_clock.now_ms() + error_ms
            return now

        def monotonic_ms(self) -> int:
            return self.now_ms()

    scheduler = Scheduler(setup.cluster.bootstrap_servers, assigned=ALL, clock=Jumping())
    oracle = Oracle(setup)
    with scheduler, setup.producer(value=Json(), key=str) as producer:
        for in_ms in (60_000, 1_800_000, 3_900_000, 7_500_000):
            oracle.send(producer, 5, in_ms=in_ms)
        scheduler.tick()
        setup.clock.advance(seconds=60)
        settle(scheduler, "t", 5, setup)
        error_ms = step_ms
        for _ in range(5):
            scheduler.tick()
        assert len(setup.values("t")) == 5
        oracle.cancel(producer, 12)
        setup.clock.advance(seconds=1_800)
        if step_ms > 0:  # the brokers' clock counts; one that is behind makes late, and nothing else
            settle(scheduler, "t", 10, setup)
        else:
            scheduler.tick()
            assert len(setup.values("t")) == 5
            error_ms = 0
            settle(scheduler, "t", 10, setup)
        error_ms = 0
        setup.clock.advance(seconds=6_000)
        settle(scheduler, "t", 19, setup)
    oracle.check()


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_a_transaction_schedules_counts_from_its_end(setup: Setup, is_committed: bool) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    settings = {"transactional.id": "orders"}
    with (
        setup.producer(value=Json(), key=str) as plain,
        setup.producer(value=Json(), key=str, settings=settings) as open_,
    ):
        plain.send("t", 1, deliver_after=60)
        plain.flush()
        transaction = open_.transaction()
        transaction.__enter__()
        open_.send("t", 2, deliver_after=60).result(30)
        plain.send("t", 3, deliver_after=60)  # behind it in the slot
        plain.flush()
        scheduler.tick()
        setup.clock.advance(seconds=50)
        scheduler.tick()
        setup.clock.advance(seconds=10)
        settle(scheduler, "t", 1, setup)
        for _ in range(3):
            scheduler.tick()
        assert setup.values("t") == [b"1"], "an open transaction holds back what is behind it"
        (transaction.commit if is_committed else transaction.abort)()
        wanted = [b"1", b"2", b"3"] if is_committed else [b"1", b"3"]
        settle(scheduler, "t", len(wanted), setup)
    scheduler.close()
    assert sorted(setup.values("t")) == wanted


def test_a_slot_whose_leader_dies_goes_on_with_the_next_one() -> None:
    with EmbeddedCluster(brokers=3, config={"offsets.topic.replication.factor": 3}) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded")
        cluster.create_topic("t", replication_factor=3)
        scheduler = Scheduler(cluster.bootstrap_servers, assigned=ALL, replication_factor=3)
        with scheduler, Producer(cluster.bootstrap_servers, value=Json(), key=str) as producer:
            now_ms = round(time.time() * 1_000)
            slot = WHEEL.slot_for(now_ms + 2_000, now_ms)
            for number in range(200):
                producer.send("t", number, deliver_after=number / 50, schedule_id=str(number))
            producer.flush()

            def delivered(count: int) -> bool:
                scheduler.tick()
                return len(kafka.consume_all("t")) >= count

            wait_until(lambda: delivered(20), 60, what="the first of them")
            cluster.kill(cluster.leader(TOPIC, slot))
            wait_until(lambda: delivered(200), 100, what="all of them")
            for _ in range(3):
                scheduler.tick()
            records = kafka.consume_all("t")
    assert sorted(int(record.value) for record in records) == list(range(200))
    assert all(record.timestamp_ms >= int(record.header_text("ottla-scheduled-due") or 0) for record in records)
