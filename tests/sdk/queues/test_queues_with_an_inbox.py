"""Queues with an inbox: copies and redeliveries that are accepted without the handler, in both shells."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apps_in_threads import serving
from queue_services import Jobs, eventually

from ottla import App, Context, Dead, Inbox, Json, Producer, RetryPolicy
from ottla.admin import Admin, UnknownGroup
from ottla.stores import Memory, Sqlite
from ottla.telemetry.metrics.hooks import Counters

SERVICE = Path(__file__).with_name("inbox_service.py")
NEVER_S = 600.0
"""A lease of claims that does not end within a test."""


@pytest.fixture(params=["threads", "asyncio"])
def is_async(request: pytest.FixtureRequest) -> Iterator[bool]:
    return request.param == "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Sqlite:
    made = Sqlite(tmp_path / "store.db")
    made.create_tables()
    session = made.session()
    session.transaction.execute("create table done (n int)")
    session.close()
    return made


def rows(folder: Path) -> list[int]:
    connection = sqlite3.connect(folder / "store.db")
    try:
        return sorted(row[0] for row in connection.execute("select n from done"))
    finally:
        connection.close()


def send(jobs: Jobs, *messages: tuple[int, str]) -> None:
    with Producer(jobs.servers, value=Json(dict)) as producer:
        for number, message_id in messages:
            producer.send(jobs.topic, {"n": number}, message_id=message_id)
    jobs.sent += len(messages)


def are_settled(jobs: Jobs) -> bool:
    """Return whether the group has settled all records of its partition, as its broker counts."""
    with Admin(jobs.servers) as admin:
        try:
            (found,) = admin.group_lag(jobs.group)
        except UnknownGroup:
            return False
    return [each.lag for each in found.partitions] == [0]


def app_of(jobs: Jobs, **options: Any) -> App:
    return App(jobs.group, bootstrap_servers=jobs.servers, dead_letter_topic=jobs.dead_letter_topic, **options)


@pytest.mark.parametrize("is_claimed", [False, True], ids=["transaction", "claims"])
@pytest.mark.representative("threads-transaction", "asyncio-claims")
def test_a_message_that_was_sent_twice_is_accepted_the_second_time_without_the_handler(
    kafka: Any, is_async: bool, is_claimed: bool, store: Sqlite, tmp_path: Path
) -> None:
    jobs = Jobs(kafka.bootstrap_servers, partitions=1)
    counters = Counters()
    app = app_of(jobs, hooks=counters)
    handled: list[int] = []

    def handle(value: dict[str, int], transaction: Any = None) -> None:
        if transaction is not None:
            transaction.execute("insert into done (n) values (?)", (value["n"],))
        handled.append(value["n"])

    declare = app.queue(
        jobs.topic, value=Json(dict), concurrency=4, inbox=Inbox(Memory() if is_claimed else store, lease_s=NEVER_S)
    )
    if is_claimed and is_async:

        @declare
        async def claimed_async(value: dict[str, int]) -> None:
            handle(value)
    elif is_claimed:

        @declare
        def claimed(value: dict[str, int]) -> None:
            handle(value)
    elif is_async:

        @declare
        async def stored_async(value: dict[str, int], transaction: Any) -> None:
            handle(value, transaction)
    else:

        @declare
        def stored(value: dict[str, int], transaction: Any) -> None:
            handle(value, transaction)

    send(jobs, *((number, str(number)) for number in range(10) for _ in range(3)))
    with serving(app, is_async=is_async) as ended:
        eventually(lambda: ended or counters["duplicates"] == 20, what="the copies were found")
        assert not ended
        eventually(lambda: are_settled(jobs), what="all are accepted")
    assert sorted(handled) == list(range(10))
    if not is_claimed:
        assert rows(tmp_path) == list(range(10))


@pytest.mark.representative("threads")
def test_a_job_that_was_given_up_is_not_marked_and_is_handled_when_it_is_sent_back(
    kafka: Any, is_async: bool, store: Sqlite, tmp_path: Path
) -> None:
    jobs = Jobs(kafka.bootstrap_servers, partitions=1)
    app = app_of(jobs)
    is_mended = threading.Event()

    def handle(value: dict[str, int], transaction: Any) -> Dead | None:
        transaction.execute("insert into done (n) values (?)", (value["n"],))
        return None if is_mended.is_set() else Dead("not yet")

    declare = app.queue(jobs.topic, value=Json(dict), inbox=Inbox(store))
    if is_async:

        @declare
        async def on_job_async(value: dict[str, int], transaction: Any) -> Dead | None:
            return handle(value, transaction)
    else:

        @declare
        def on_job(value: dict[str, int], transaction: Any) -> Dead | None:
            return handle(value, transaction)

    send(jobs, (1, "one"))
    with serving(app, is_async=is_async) as ended:
        assert jobs.dead_letters(1) == [1]
        assert rows(tmp_path) == [], "what the handler wrote was rolled back"
        is_mended.set()
        send(jobs, (1, "one"))
        eventually(lambda: ended or rows(tmp_path) == [1], what="it is done")
        assert not ended


@pytest.mark.representative("asyncio")
def test_a_job_that_fails_is_tried_again_although_it_was_claimed(kafka: Any, is_async: bool) -> None:
    jobs = Jobs(kafka.bootstrap_servers, partitions=1)
    app = app_of(jobs)
    attempts: list[int] = []

    def handle(context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise ValueError("again")

    retry = RetryPolicy(max_attempts=3, initial_s=0.01, max_s=0.02)
    declare = app.queue(jobs.topic, retry=retry, inbox=Inbox(Memory(), lease_s=NEVER_S))
    if is_async:

        @declare
        async def on_job_async(value: bytes, context: Context) -> None:
            handle(context)
    else:

        @declare
        def on_job(value: bytes, context: Context) -> None:
            handle(context)

    send(jobs, (1, "one"))
    with serving(app, is_async=is_async) as ended:
        eventually(lambda: ended or are_settled(jobs), what="it is accepted")
        assert not ended
    assert attempts == [1, 2, 3]


def test_a_job_that_was_cancelled_is_handled_again_before_its_claim_expires(kafka: Any) -> None:
    jobs = Jobs(kafka.bootstrap_servers, partitions=1)
    app = app_of(jobs)
    attempts: list[int] = []

    @app.queue(jobs.topic, max_attempts=3, max_job_s=1, inbox=Inbox(Memory(), lease_s=NEVER_S))
    async def on_job(value: bytes, context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            await asyncio.sleep(NEVER_S)

    send(jobs, (1, "one"))
    with serving(app, is_async=True) as ended:
        eventually(lambda: ended or are_settled(jobs), what="it is accepted")
        assert not ended
    assert attempts == [1, 2]


def test_a_thread_that_is_late_has_done_its_job_once_although_its_lease_is_lost(kafka: Any) -> None:
    jobs = Jobs(kafka.bootstrap_servers, partitions=1)
    counters = Counters()
    app = app_of(jobs, hooks=counters)
    goes_on, busy = threading.Event(), threading.Event()
    seen: list[tuple[int, bool]] = []

    class Claims(Memory):
        """Says when the other attempt has found the claim of the first one."""

        def claims(self) -> Any:
            session = super().claims()
            look = session.look

            def looked(*arguments: Any) -> Any:
                busy.set()
                return look(*arguments)

            session.look = looked
            return session

    @app.queue(jobs.topic, concurrency=2, max_attempts=3, max_job_s=1, inbox=Inbox(Claims(), lease_s=NEVER_S))
    def on_job(value: bytes, context: Context) -> None:
        goes_on.wait(60)
        seen.append((context.attempt, context.lease_lost))

    send(jobs, (1, "one"))
    with serving(app, is_async=False) as ended:
        assert busy.wait(60), "the next attempt waits for the claim"
        goes_on.set()
        eventually(lambda: ended or are_settled(jobs), what="it is accepted")
        assert not ended
    assert seen == [(1, True)], "the second attempt found that the message is done"
    assert counters["duplicates"] == 1


@pytest.mark.complete
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.representative("threads-after")
def test_each_job_is_one_row_although_its_process_is_killed_about_the_commit(
    kafka: Any, is_async: bool, side: str, store: Sqlite, tmp_path: Path
) -> None:
    """After the commit, and before the record is accepted, the job is done and comes again."""
    jobs = Jobs(kafka.bootstrap_servers, jobs=20, partitions=1)
    shell = "asyncio" if is_async else "threads"
    command = [sys.executable, str(SERVICE), shell, jobs.servers, jobs.topic, jobs.group, str(tmp_path / "store.db")]
    with (tmp_path / "log").open("ab") as log:
        for nth in (1, 6):
            killed = subprocess.Popen([*command, side, str(nth)], stdout=log, stderr=log)
            assert killed.wait(60) == -signal.SIGKILL, (tmp_path / "log").read_text()
        last = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            eventually(lambda: are_settled(jobs), what="all are accepted")
            last.send_signal(signal.SIGTERM)
            assert last.wait(30) == 0
        finally:
            last.kill()
            last.wait()
    assert rows(tmp_path) == list(range(20))
