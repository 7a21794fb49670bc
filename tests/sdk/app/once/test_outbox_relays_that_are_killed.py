"""Relays are killed and stopped at each of their steps: every committed row arrives, in order, under its own id."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warm_processes import WarmProcess

from ottla import Json, Str

from .conftest import make_store
from .test_outbox_through_clients import ID_HEADER, Service, by_key, drained

pytestmark = pytest.mark.complete

RELAY = Path(__file__).with_name("outbox_relay_to_kill.py")

POINTS = [
    *(("_read", side, 2) for side in ("before", "after")),
    *(("_hand_over", side, 25) for side in ("before", "after")),
    *(("_await_reports", side, 2) for side in ("before", "after")),
    *(("_delete", side, 2) for side in ("before", "after")),
    *(("_park", side, 1) for side in ("before", "after")),
    *(("_is_the_one", side, 2) for side in ("before", "after")),
    ("_measure", "after", 2),
]


@pytest.fixture(params=["sqlite", "postgres"])
def service(request: pytest.FixtureRequest, kafka: Any, tmp_path: Path) -> Iterator[Service]:
    made = Service(make_store(request.param, tmp_path, request), kafka.bootstrap_servers)
    made.place = str(tmp_path / "store.db") if request.param == "sqlite" else made.store._conninfo  # type: ignore[attr-defined]
    yield made
    made.close()


def start(service: Any, servers: str, *arguments: str) -> WarmProcess:
    return WarmProcess(RELAY, servers, service.place, *arguments, stderr=subprocess.DEVNULL)


def check(records: list[Any], keys: int, per_key: int) -> int:
    """Returns how many copies there are."""
    first: dict[Any, Any] = {}
    for record in records:
        own = dict(record.headers)[ID_HEADER]
        assert first.setdefault(own, record).value == record.value, "a copy has the id of its record"
    wanted = {f"key-{key}": list(range(per_key)) for key in range(keys)}
    assert by_key(first.values()) == wanted
    return len(records) - len(first)


@pytest.mark.timeout(600)
def test_a_relay_is_killed_before_and_after_each_of_its_steps(
    service: Any, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic, bad = make_topic(partitions=2), make_topic("bad")
    per_key = 0
    for step, side, nth in POINTS:
        for _ in range(15):
            service.connection.execute("begin")
            for key in range(4):
                service.outbox.add(service.connection, topic, per_key, key=f"key-{key}")
            service.connection.execute("commit")
            service.connection.execute("begin")
            service.outbox.add(service.connection, topic, "rolled back", key="key-0")
            service.connection.execute("rollback")
            per_key += 1
        if step == "_park":
            service.add(bad, "refused", key=None, partition=9)
        process = start(service, kafka.bootstrap_servers, step, side, str(nth))
        assert process.wait(60) == -9, f"it ended itself {side} {step}"
    process = start(service, kafka.bootstrap_servers)
    try:
        wait(lambda: drained(service), timeout_s=60)
    finally:
        process.kill()
        process.wait()
    copies = check(kafka.consume_all(topic, value=Json(), key=Str()), 4, per_key)
    assert copies > 0, "a relay that is killed between acknowledgement and deletion leaves copies"
    assert kafka.consume_all(bad) == []


@pytest.mark.representative("sqlite")
@pytest.mark.timeout(600)
def test_relays_are_killed_at_any_moment_while_transactions_commit(
    service: Any, kafka: Any, make_topic: Any, wait: Any
) -> None:
    """Two at a time, so that one takes over while the other's records may still be on their way."""
    topic, chance = make_topic(partitions=2), random.Random(5)
    relays = [start(service, kafka.bootstrap_servers) for _ in range(2)]
    per_key = 0
    try:
        for _ in range(6):
            goal = per_key + chance.randrange(20, 120)
            while per_key < goal:
                service.connection.execute("begin")
                for key in range(4):
                    service.outbox.add(service.connection, topic, per_key, key=f"key-{key}")
                service.connection.execute("commit")
                per_key += 1
            waiting = service.session.lag().waiting
            wait(lambda waiting=waiting: service.session.lag().waiting <= waiting // 2, timeout_s=60)
            for at in range(2):
                relays[at].kill()
                relays[at].wait()
                relays[at] = start(service, kafka.bootstrap_servers)
        wait(lambda: drained(service), timeout_s=60)
    finally:
        for process in relays:
            process.kill()
            process.wait()
    check(kafka.consume_all(topic, value=Json(), key=Str()), 4, per_key)


STOPS = [
    ("_is_the_one", "after", 2),  # it believes that its lease lasts
    ("_hand_over", "before", 25),  # it has read rows, and sent a part of them
    ("_await_reports", "before", 2),  # all of them are on their way
    ("_delete", "before", 2),  # they are acknowledged
]


@pytest.mark.timeout(300)
def test_a_relay_that_stood_still_beyond_its_lease_breaks_no_order_and_copies_once(
    service: Any, kafka: Any, make_topic: Any, wait: Any
) -> None:
    """SIGSTOP at a step, until another relay has taken over and gone on; then SIGCONT."""
    topic, per_key = make_topic(partitions=2), 0

    def add(rows: int) -> None:
        nonlocal per_key
        for _ in range(rows):
            service.connection.execute("begin")
            for key in range(4):
                service.outbox.add(service.connection, topic, per_key, key=f"key-{key}")
            service.connection.execute("commit")
            per_key += 1

    def relay_them(rows: int) -> None:
        add(rows)
        wait(lambda: drained(service), timeout_s=60)

    def stands_still(process: WarmProcess) -> bool:
        """False if it writes at the moment: all other writers of SQLite would wait for it."""
        process.send_signal(signal.SIGSTOP)
        try:
            add(1)
        except sqlite3.OperationalError:
            service.connection.execute("rollback")
            process.send_signal(signal.SIGCONT)
            return False
        return True

    processes = [start(service, kafka.bootstrap_servers)]
    try:
        relay_them(1)
        for step, side, nth in STOPS:
            other = processes[-1]
            wait(lambda other=other: stands_still(other), timeout_s=60)
            add(14)
            stopped = start(service, kafka.bootstrap_servers, step, side, str(nth), "SIGSTOP")
            processes.append(stopped)
            wait(stopped.is_stopped, timeout_s=60)
            other.send_signal(signal.SIGCONT)
            relay_them(1)
            relay_them(5)
            stopped.send_signal(signal.SIGCONT)
            relay_them(5)
            other.kill()
            other.wait()
            relay_them(1)  # by the one that had stopped, which is at its end with what it had read
    finally:
        for process in processes:
            process.kill()
            process.wait()
    records = kafka.consume_all(topic, value=Json(), key=Str())
    copies = check(records, 4, per_key)
    assert copies >= 20, "the rows that were acknowledged and not deleted came again"
    times = Counter(dict(record.headers)[ID_HEADER] for record in records)
    assert max(times.values()) == 2, "two relays had each row at most"
