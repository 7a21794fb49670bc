"""Claims that are lost: processes that stood still beyond their lease, and a Redis that is killed with its marks."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from dead_members import forget_members
from warm_processes import WarmProcess

from ottla import App, CommitPolicy, Inbox, Json, Record, RetryPolicy
from ottla.app.once.leases import ClaimLease
from ottla.telemetry.metrics.hooks import Counters
from ottla.testing.databases import NoServer, RedisServer, redis_server

from .conftest import make_store

pytestmark = pytest.mark.complete

SERVICE = Path(__file__).with_name("service_to_kill.py")
FIRST, SECOND = range(1, 45), range(51, 99)
"""Values without poison, which are multiples of 50."""

STOPS = [
    ("claim", "after", 2),  # nothing of the run was handled
    ("handle", "before", 25),  # it is in the middle of a run
    ("finish", "before", 2),  # all of the run was handled, and nothing of it is marked
]


@pytest.mark.parametrize(("step", "side", "nth"), STOPS, ids=[f"{side} {step}" for step, side, _ in STOPS])
@pytest.mark.parametrize(
    ("shell", "kind"), [(shell, kind) for shell in ("threads", "asyncio") for kind in ("redis", "postgres")]
)
@pytest.mark.timeout(120)
def test_a_process_that_stood_still_beyond_its_lease_handles_nothing_more_of_its_run(
    shell: str,
    kind: str,
    step: str,
    side: str,
    nth: int,
    kafka: Any,
    make_topic: Any,
    kafka_group: str,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGSTOP, until another member has handled what the first had claimed; then SIGCONT.

    Only the record at which it stood still is handled once more, and it says that somebody else may have had it. (In
    SQLite a process that stands still may hold the lock of the one writer: then nobody takes over.)
    """
    topic = make_topic()
    kafka.create_topic(f"{topic}-dead")
    store = make_store(kind, tmp_path, request)
    place = store._url if kind == "redis" else store._conninfo
    logs = [tmp_path / "old", tmp_path / "new"]
    processes: list[WarmProcess] = []
    monkeypatch.setenv("CLAIMS", "1")
    monkeypatch.setenv("SIGNAL", "SIGSTOP")

    def start(*stop: str) -> WarmProcess:
        log = logs[len(processes)]
        log.touch()
        arguments = [shell, kafka.bootstrap_servers, kafka_group, topic, place, str(log), *stop]
        process = WarmProcess(SERVICE, *arguments, stderr=subprocess.DEVNULL)
        processes.append(process)
        return process

    def handled(log: Path) -> list[int]:
        return [int(line) for line in log.read_text().split()]

    kafka.produce(topic, FIRST, value=Json())
    try:
        old = start(step, side, str(nth))
        wait(old.is_stopped, timeout_s=60)
        before = handled(logs[0])
        forget_members(kafka.bootstrap_servers, kafka_group)
        start()
        wait(lambda: {*before, *handled(logs[1])} >= set(FIRST), timeout_s=60)
        old.send_signal(signal.SIGCONT)
        told = Path(f"{logs[0]}.events")
        wait(lambda: told.exists() and "inbox_lease_lost" in told.read_text(), timeout_s=60)
        if step == "handle":  # its other thread may have said that before this one finished its record
            wait(lambda: len(handled(logs[0])) > len(before), timeout_s=60)
        kafka.produce(topic, SECOND, value=Json())
        wait(lambda: {*handled(logs[0]), *handled(logs[1])} >= {*FIRST, *SECOND}, timeout_s=60)
    finally:
        for process in processes:
            process.kill()
            process.wait()

    again = [value for value in handled(logs[0])[len(before) :] if value in FIRST]
    assert len(again) == (1 if step == "handle" else 0), "nothing of its run but the record at which it stood"
    times = Counter(handled(logs[0]) + handled(logs[1]))
    assert {value for value in times if times[value] > 1} <= {*before, *again}, "what it had handled and not marked"
    assert max(times.values()) <= 2
    session = store.claims()
    states = session.look(f"{kafka_group}/once", [str(value) for value in (*FIRST, *SECOND)])
    session.close()
    assert [states.get(str(value), "unknown") for value in FIRST] == [None] * len(FIRST), "marked by whoever handled it"


def test_a_lease_is_lost_by_its_own_clock_and_told_once() -> None:
    told: list[Any] = []
    lease = ClaimLease(["a", "b"], "me", lease_s=10, claimed_s=monotonic(), on_lost=told.append)
    assert lease.is_held()
    lease.asked(None, monotonic())
    assert lease.is_held(), "the store was away, and the claims have not run out"
    lease.renewed_s = monotonic() - 10
    assert not lease.is_held(), "before any renewal was answered"
    lease.asked(2, monotonic())
    assert not lease.is_held(), "somebody may have had them in between"
    assert told == [["a", "b"]]


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    lease = ClaimLease(["a"], "me", lease_s=10, claimed_s=monotonic() - 5, on_lost=lambda ids: None)
    lease.asked(1, monotonic() - 11)
    assert not lease.is_held()


def test_a_claim_that_somebody_else_has_is_lost_at_once() -> None:
    told: list[Any] = []
    lease = ClaimLease(["a", "b"], "me", lease_s=10, claimed_s=monotonic(), on_lost=told.append)
    lease.asked(1, monotonic())
    assert not lease.is_held()
    assert told == [["a", "b"]]


@pytest.fixture(params=[True, False], ids=["it has its marks again", "its marks are lost"])
def own_redis(request: pytest.FixtureRequest) -> Iterator[tuple[RedisServer, bool]]:
    """A server to kill; and whether it keeps what it holds."""
    pytest.importorskip("redis", reason="the Redis store needs redis")
    try:
        with redis_server(appendonly=request.param) as server:
            yield server, request.param
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(120)
def test_redis_is_killed_while_messages_are_handled(
    own_redis: tuple[RedisServer, bool],
    shell: Any,
    kafka: Any,
    make_topic: Any,
    kafka_group: str,
    committed: Any,
    wait: Any,
) -> None:
    """It is an outage: no record fails for it, none is lost, none is handled twice. Copies of messages whose marks were
    lost are handled again, and no others."""
    from ottla.stores import Redis

    server, keeps_marks = own_redis
    topic, dead, counters = make_topic(), make_topic("dead"), Counters()
    handled: list[int] = []
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        retry=RetryPolicy(max_attempts=1),
        dead_letter_topic=dead,
        hooks=counters,
    )

    def id_of(record: Record[Any]) -> str:
        return str(record.value)

    @app.handler(
        topic, value=Json(), name="once", inbox=Inbox(Redis(server.url), id=id_of, lease_s=0.5), max_records_per_turn=20
    )
    def handle(value: int) -> None:
        handled.append(value)

    shell.start(app)
    for first in range(0, 3_000, 1_000):
        kafka.produce(topic, range(first, first + 1_000), value=Json())
        wait(lambda goal=first + 300: len(handled) >= goal, timeout_s=60)
        server.kill()
        before = counters["record_retried"]
        kafka.produce(topic, [10_000 + first], value=Json())
        wait(lambda before=before: counters["record_retried"] > before, timeout_s=60)
        server.start()
    wait(lambda: committed(kafka_group, topic) == 3_003, timeout_s=60)
    log = [record.value for record in kafka.consume_all(topic, value=Json())]
    assert handled == log, "each once, in order"

    session = Redis(server.url).claims()
    states = session.look(f"{kafka_group}/once", [str(value) for value in log])
    session.close()
    assert all(state is None for state in states.values())
    unmarked = [value for value in log if str(value) not in states]
    assert bool(unmarked) != keeps_marks
    kafka.produce(topic, log, value=Json())
    wait(lambda: committed(kafka_group, topic) == 6_006, timeout_s=60)
    shell.stop(app)
    assert handled[len(log) :] == unmarked
    assert kafka.consume_all(dead) == []
