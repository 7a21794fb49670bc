"""Results, dead letters and offsets of columns are seen once and in order, whenever a process dies, stops or is fenced.

The oracle is what a `read_committed` consumer sees of the results and of the dead letters, against the source's log.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from followed_topic import FollowedTopic
from warm_processes import WarmProcess

from ottla import Json
from ottla.testing.waiting import wait_until

from .columns_service import STEPS

pytestmark = pytest.mark.complete

SERVICE = Path(__file__).with_name("columns_service.py")
PARTITIONS = 2


class Services:
    """Processes of one group, from one topic to another."""

    def __init__(self, kafka: Any, group: str, source: str, target: str, log: Path) -> None:
        self._kafka = kafka
        self._arguments = [kafka.bootstrap_servers, group, source, target]
        self._log = log
        self.source, self.target = source, target
        self.results_seen = FollowedTopic(kafka.bootstrap_servers, target)
        self._letters_seen = FollowedTopic(kafka.bootstrap_servers, f"{target}-dead")
        self.processes: list[WarmProcess] = []
        self.sent = 0

    def start(self, instance: str = "", step: str = "") -> WarmProcess:
        with self._log.open("ab") as log:
            process = WarmProcess(SERVICE, *self._arguments, instance, step, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self._kafka.produce(self.source, numbers, value=Json(), keys=map(str, numbers), key=str)
        self.sent += count

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.results_seen.close()
        self._letters_seen.close()

    def is_complete(self) -> bool:
        return self.results_seen.count() + self._letters_seen.count() >= self.sent

    def results(self) -> list[Any]:
        found: list[Any] = self._kafka.consume_all(self.target)
        return found

    def letters(self) -> list[Any]:
        found: list[Any] = self._kafka.consume_all(f"{self.target}-dead")
        return found

    def check(self) -> None:
        log = self._kafka.consume_all(self.source)
        results = self.results()
        bad = [int(record.value) for record in log if int(record.value) % 97 == 0]
        assert sorted(int(letter.value) for letter in self.letters()) == sorted(bad), "each dead letter once"
        for partition in range(PARTITIONS):
            read = [int(record.value) for record in log if record.partition == partition]
            written = [int(record.value) for record in results if record.partition == partition]
            assert written == [number for number in read if number % 97], f"each once, in order, in {partition}"


@pytest.fixture
def services(kafka: Any, kafka_group: str, make_topic: Any, tmp_path: Path) -> Iterator[Services]:
    target = make_topic("target", partitions=PARTITIONS)
    kafka.create_topic(f"{target}-dead")
    made = Services(kafka, kafka_group, make_topic("source", partitions=PARTITIONS), target, tmp_path / "log")
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_at_each_step_of_a_transaction_writes_nothing_twice_and_loses_nothing(services: Services) -> None:
    for step in STEPS:
        services.send(1_000)
        process = services.start("one", step)
        wait_until(lambda process=process: process.poll() is not None, timeout_s=60)  # type: ignore[misc]
        assert process.returncode == -signal.SIGKILL, f"it died after {step}"
    services.start("one")
    wait_until(services.is_complete, timeout_s=90)
    services.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_at_any_moment_write_nothing_twice_and_lose_nothing(services: Services) -> None:
    chance = random.Random(23)
    for _ in range(3):
        services.send(3_000)
        goal = len(services.results()) + chance.randrange(200, 1_500)
        process = services.start("one")
        wait_until(lambda goal=goal: services.results_seen.count() >= goal, timeout_s=90)  # type: ignore[misc]
        process.kill()
        process.wait()
    services.start("one")
    wait_until(services.is_complete, timeout_s=90)
    services.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_process_that_stood_still_beyond_its_session_writes_nothing_more(services: Services) -> None:
    """SIGSTOP in the middle of work, until another member has the partitions; then SIGCONT."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.is_set():
            services.send(200)
            is_over.wait(0.1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        old = services.start()
        wait_until(lambda: services.results_seen.count() > 300, timeout_s=60)
        os.kill(old.pid, signal.SIGSTOP)
        at = len(services.results())
        services.start()
        wait_until(lambda: services.results_seen.count() > at + 500, timeout_s=90)
        os.kill(old.pid, signal.SIGCONT)
        after = len(services.results())
        wait_until(lambda: services.results_seen.count() > after + 500, timeout_s=90)
    finally:
        is_over.set()
        thread.join()
    wait_until(services.is_complete, timeout_s=90)
    services.check()
