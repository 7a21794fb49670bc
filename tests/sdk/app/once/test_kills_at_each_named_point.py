"""`kill -9` before and after each step of a run: claim, begin, mark, handle, save, commit, rollback, finish, release.

Between two kills come new messages, copies of them, and poison. In a database the oracle is one row per good message,
in the order of the log. With claims a message is handled again only if its process died between effect and mark.
"""

from __future__ import annotations

import signal
import subprocess
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dead_members import forget_members
from warm_processes import WarmProcess

from ottla import Json
from ottla.testing.databases import RedisServer

from .conftest import make_store
from .test_offsets_through_clients import Ledger

pytestmark = pytest.mark.complete

SERVICE = Path(__file__).with_name("service_to_kill.py")
MESSAGES, COPIES = 60, 10

IN_A_TRANSACTION = [
    *(("claim_offsets", side, 1) for side in ("before", "after")),
    *(("begin", side, 2) for side in ("before", "after")),
    *(("mark", side, 2) for side in ("before", "after")),
    *(("handle", side, 25) for side in ("before", "after")),
    *(("save_offset", side, 2) for side in ("before", "after")),
    *(("commit", side, 2) for side in ("before", "after")),
    *(("rollback", side, 1) for side in ("before", "after")),
]
WITH_CLAIMS = [
    *(("claim", side, 2) for side in ("before", "after")),
    *(("handle", side, 25) for side in ("before", "after")),
    *(("finish", side, 2) for side in ("before", "after")),
    *(("release", side, 1) for side in ("before", "after")),
]
LOSES_MARKS = {"handle before", "handle after", "finish before", "release before", "release after"}
"""Points at which effects of a run are there and its marks are not: it is marked when it is over."""


class Killed:
    """A service that is started again and again, and what it is given."""

    def __init__(self, kafka: Any, group: str, topic: str, shell: str, place: str, table: str) -> None:
        self._kafka, self._group, self.topic = kafka, group, topic
        self._arguments = [shell, kafka.bootstrap_servers, group, topic, place, table]
        self.sent = 0

    def produce(self) -> None:
        numbers = range(self.sent, self.sent + MESSAGES)
        self._kafka.produce(self.topic, [*numbers, *numbers[:COPIES]], value=Json())
        self.sent += MESSAGES

    def start(self, *step: str) -> WarmProcess:
        return WarmProcess(SERVICE, *self._arguments, *step, stderr=subprocess.DEVNULL)

    def die(self, step: str, side: str, nth: int) -> None:
        self.produce()
        process = self.start(step, side, str(nth))
        try:
            assert process.wait(60) == -signal.SIGKILL, f"it ended itself {side} {step}"
        finally:
            process.kill()
            process.wait()
        forget_members(self._kafka.bootstrap_servers, self._group)

    def finish(self, is_done: Callable[[], bool], wait: Any) -> None:
        self.produce()
        process = self.start()
        try:
            wait(is_done, timeout_s=60)
        finally:
            process.kill()
            process.wait()

    @property
    def good(self) -> list[int]:
        return [number for number in range(self.sent) if number % 50]

    def has_letters(self) -> bool:
        letters = {record.value for record in self._kafka.consume_all(f"{self.topic}-dead", value=Json())}
        return letters == {number for number in range(self.sent) if number % 50 == 0}


@pytest.mark.parametrize(("shell", "kind"), [("threads", "sqlite"), ("asyncio", "postgres")])
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_message_has_one_row_in_order(
    shell: str,
    kind: str,
    kafka: Any,
    make_topic: Any,
    kafka_group: str,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    topic = make_topic()
    kafka.create_topic(f"{topic}-dead")
    ledger = Ledger(make_store(kind, tmp_path, request), kafka_group)
    place = str(tmp_path / "store.db") if kind == "sqlite" else request.getfixturevalue("postgres").conninfo
    service = Killed(kafka, kafka_group, topic, shell, place, ledger.table)
    for step, side, nth in IN_A_TRANSACTION:
        service.die(step, side, nth)
    service.finish(lambda: ledger.count() >= len(service.good) and service.has_letters(), wait)
    rows = ledger.rows()
    ledger.close()
    assert rows == service.good


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_claimed_message_is_handled_again_only_where_its_mark_was_lost(
    redis: RedisServer, kafka: Any, make_topic: Any, kafka_group: str, wait: Any, tmp_path: Path
) -> None:
    topic, log = make_topic(), tmp_path / "handled"
    kafka.create_topic(f"{topic}-dead")
    log.touch()
    service = Killed(kafka, kafka_group, topic, "threads", redis.url, str(log))

    def handled() -> list[int]:
        return [int(line) for line in log.read_text().split()]

    def is_done() -> bool:
        return set(handled()) >= set(service.good) and service.has_letters()

    ends: list[int] = []
    for step, side, nth in WITH_CLAIMS:
        service.die(step, side, nth)
        ends.append(len(handled()))
    service.finish(is_done, wait)
    by_process: dict[int, list[int]] = {}
    for place, number in enumerate(handled()):
        by_process.setdefault(number, []).append(bisect_right(ends, place))
    assert sorted(by_process) == service.good
    for number, processes in by_process.items():
        for before in processes[:-1]:
            step, side, _ = WITH_CLAIMS[before]
            assert f"{step} {side}" in LOSES_MARKS, f"{number} was marked before the process died {side} {step}"
