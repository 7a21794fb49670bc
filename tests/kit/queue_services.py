"""Queues on a running broker: topics with jobs in them, what became of the jobs, and members that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from ottla import Consumer, Json, Producer, TopicSpec
from ottla.admin import Admin

_numbers = count(1)

SERVICE = """
import json, os, sys, time
from ottla import App, Context, Json, RetryPolicy

servers, topic, group, behaviour, journal = sys.argv[1:6]
app = App(group, bootstrap_servers=servers, dead_letter_topic=topic + ".dead", drain_s=5)

def note(what, value):
    with open(journal, "a") as file:
        file.write(json.dumps([what, value, os.getpid()]) + "\\n")

@app.queue(topic, value=Json(dict), concurrency=4, retry=RetryPolicy(max_attempts=4, initial_s=0.01, max_s=0.02))
def job(value: dict, context: Context) -> None:
    note("began", value["n"])
    if behaviour == "hang":
        time.sleep(600)
    if behaviour == "slow":
        time.sleep(0.02)
    if value["n"] % 7 == 3:
        raise ValueError("never")
    note("done", value["n"])

app.run()
"""


class Jobs:
    """A topic of its own with jobs numbered from 0, and its dead letter topic."""

    def __init__(self, servers: str, *, jobs: int = 0, partitions: int = 2, replicas: int = 1) -> None:
        self.servers = servers
        self.topic = f"jobs-{uuid4().hex[:8]}-{next(_numbers)}"
        self.group = f"{self.topic}-workers"
        self.dead_letter_topic = f"{self.topic}.dead"
        own = TopicSpec(partitions=partitions, replication_factor=replicas)
        dead_letters = TopicSpec(partitions=1, replication_factor=replicas)
        with Admin(servers) as admin:
            admin.create_topics({self.topic: own, self.dead_letter_topic: dead_letters})
        self.sent = 0
        self.send(jobs)

    def send(self, jobs: int) -> None:
        """Send so many more."""
        if not jobs:
            return
        with Producer(self.servers, value=Json(dict)) as producer:
            for number in range(self.sent, self.sent + jobs):
                producer.send(self.topic, {"n": number}, key=str(number).encode())
        self.sent += jobs

    def dead_letters(self, wanted: int) -> list[int]:
        """Read the numbers of the dead letters, as soon as there are so many."""
        return self._dead_letters(lambda found: len(found) >= wanted)

    def dead_letters_until(self, wanted: set[int]) -> set[int]:
        """Read the numbers of the dead letters, as soon as all of these are there."""
        return set(self._dead_letters(lambda found: wanted <= set(found)))

    def _dead_letters(self, are_all: Callable[[list[int]], bool]) -> list[int]:
        found: list[int] = []
        consumer = Consumer(
            self.dead_letter_topic,
            group=f"{self.topic}-reader-{next(_numbers)}",
            value=Json(dict),
            bootstrap_servers=self.servers,
            settings={"auto.offset.reset": "earliest"},
        )
        with consumer:
            until_s = time.monotonic() + 30
            while not are_all(found) and time.monotonic() < until_s:
                for record in consumer.poll(0.2):
                    assert isinstance(record.value, dict)
                    found.append(record.value["n"])
                    consumer.ack(record)
        return found


class Service:
    """A process that runs a queue's app, and the journal of what it did."""

    def __init__(self, jobs: Jobs, folder: Path, *, behaviour: str = "quick") -> None:
        self._script = folder / "service.py"
        self._script.write_text(SERVICE)
        self.journal = folder / "journal"
        self.journal.touch()
        command = [jobs.servers, jobs.topic, jobs.group, behaviour, str(self.journal)]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, str(self._script), *command], stdout=log, stderr=log)

    def noted(self, what: str) -> list[int]:
        """Return the numbers of the jobs of which it was noted, by any process with this journal."""
        return [each[1] for each in map(json.loads, self.journal.read_text().splitlines()) if each[0] == what]


@contextmanager
def services(jobs: Jobs, folder: Path) -> Iterator[Callable[[str], Service]]:
    """Yield what starts a service with this behaviour; all are killed in the end."""
    started: list[Service] = []

    def start(behaviour: str = "quick") -> Service:
        started.append(Service(jobs, folder, behaviour=behaviour))
        return started[-1]

    try:
        yield start
    finally:
        for service in started:
            service.process.kill()
            service.process.wait()


def eventually(is_so: Callable[[], Any], *, timeout_s: float = 60.0, what: str = "") -> None:
    """Wait until it is so."""
    until_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)
