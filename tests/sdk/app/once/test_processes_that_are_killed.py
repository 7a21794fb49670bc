"""One row per record, in order, although processes and the database are killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dead_members import forget_members
from warm_processes import WarmProcess

from ottla import Json
from ottla.testing.databases import PostgresServer

from .conftest import make_store
from .test_offsets_through_clients import Ledger

pytestmark = pytest.mark.complete

SERVICE = Path(__file__).with_name("once_service.py")


class Services:
    """Processes of one group."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.processes: list[WarmProcess] = []

    def start(self) -> WarmProcess:
        process = WarmProcess(SERVICE, *self._arguments, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def services() -> Iterator[Callable[..., Services]]:
    made: list[Services] = []

    def make(*arguments: str) -> Services:
        made.append(Services(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", ["threads", "asyncio"])
@pytest.mark.timeout(300)
def test_a_service_that_is_killed_again_and_again_writes_each_record_once(
    kind: str,
    name: str,
    services: Callable[..., Services],
    kafka: Any,
    make_topic: Any,
    kafka_group: str,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    topic, chance = make_topic("killed", partitions=2), random.Random(7)
    store = make_store(kind, tmp_path, request)
    ledger = Ledger(store, kafka_group)
    place = str(tmp_path / "store.db") if kind == "sqlite" else request.getfixturevalue("postgres").conninfo
    group = services(name, kafka.bootstrap_servers, kafka_group, topic, place, ledger.table)
    sent = 0
    for _ in range(3):
        kafka.produce(topic, range(sent, sent + 2_000), value=Json(), keys=map(str, range(2_000)), key=str)
        sent += 2_000
        before, process = ledger.count(), group.start()
        goal = before + chance.randrange(1, 400)
        wait(lambda goal=goal: ledger.count() >= goal, timeout_s=60)
        process.kill()
        process.wait()
        forget_members(kafka.bootstrap_servers, kafka_group)
    group.start()
    wait(lambda: ledger.count() >= sent, timeout_s=60)
    check_equal_to_the_log(ledger, kafka, topic)


@pytest.mark.timeout(300)
def test_a_service_survives_that_the_database_is_killed_during_its_commits(
    postgres: PostgresServer,
    services: Callable[..., Services],
    kafka: Any,
    make_topic: Any,
    kafka_group: str,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    topic, chance = make_topic("commits", partitions=2), random.Random(11)
    ledger = Ledger(make_store("postgres", tmp_path, request), kafka_group)
    group = services("threads", kafka.bootstrap_servers, kafka_group, topic, postgres.conninfo, ledger.table)
    ledger.close()
    kafka.produce(topic, range(12_000), value=Json(), keys=map(str, range(12_000)), key=str)
    group.start()
    for kills in range(1, 4):
        watching = Ledger.of(make_store("postgres", tmp_path, request), ledger.table)
        goal = min(11_000, watching.count() + chance.randrange(20, 900))
        wait(lambda watching=watching, goal=goal: watching.count() >= goal, timeout_s=60)
        watching.close()
        postgres.kill()
        postgres.start()
        assert kills
    ledger = Ledger.of(make_store("postgres", tmp_path, request), ledger.table)
    wait(lambda: ledger.count() >= 12_000, timeout_s=90)
    check_equal_to_the_log(ledger, kafka, topic)


@pytest.mark.timeout(300)
def test_a_service_that_was_stopped_beyond_its_session_is_fenced(
    postgres: PostgresServer,
    services: Callable[..., Services],
    kafka: Any,
    make_topic: Any,
    kafka_group: str,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """SIGSTOP in the middle of work, until another member has the partition; then SIGCONT. The coordinator forgets the
    member before the member itself can know that its session is over.
    """
    topic = make_topic("stopped")
    ledger = Ledger(make_store("postgres", tmp_path, request), kafka_group)
    group = services("threads", kafka.bootstrap_servers, kafka_group, topic, postgres.conninfo, ledger.table)
    producing = threading.Event()
    watching = Ledger.of(make_store("postgres", tmp_path, request), ledger.table)

    def produce() -> None:
        sent = 0
        while not producing.is_set():
            if sent < watching.count() + 2_000:  # what is left at the end takes a slow machine as long as a fast one
                kafka.produce(topic, range(sent, sent + 200), value=Json())
                sent += 200
            producing.wait(0.1)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        old = group.start()
        wait(lambda: ledger.count() > 300, timeout_s=60)
        os.kill(old.pid, signal.SIGSTOP)
        forget_members(kafka.bootstrap_servers, kafka_group)
        at = ledger.count()
        group.start()
        wait(lambda: ledger.count() > at + 500, timeout_s=60)
        os.kill(old.pid, signal.SIGCONT)
        after = ledger.count()
        wait(lambda: ledger.count() > after + 1_000, timeout_s=60)
    finally:
        producing.set()
        thread.join()
        watching.close()
    total = len(kafka.consume_all(topic))
    wait(lambda: ledger.count() >= total, timeout_s=60)
    check_equal_to_the_log(ledger, kafka, topic)


def check_equal_to_the_log(ledger: Ledger, kafka: Any, topic: str) -> None:
    rows = ledger.rows()
    ledger.close()
    log = kafka.consume_all(topic, value=Json())
    assert sorted(rows) == sorted(record.value for record in log), "one row per record"
    for partition in {record.partition for record in log}:
        own = [record.value for record in log if record.partition == partition]
        among = set(own)
        assert [value for value in rows if value in among] == own, f"in the order of partition {partition}"
