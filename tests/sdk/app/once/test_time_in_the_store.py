"""What a run's time in the store is: that of the whole run, in both shells. The turns of a handler do not count it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla import App, Inbox
from ottla.app.app import declarations_of
from ottla.app.once import once_invoker as once
from ottla.consumer.model.run import Run, RunResult
from ottla.records import Record, TopicPartition
from ottla.stores import Sqlite

from .conftest import sqlite_store

HERE = TopicPartition("orders", 0)


class SlowStore:
    """SQLite, whose commits take seven seconds of a clock that only they move."""

    def __init__(self, store: Sqlite) -> None:
        self._store = store
        self.now_s = 0.0
        self.is_outage = store.is_outage

    def clock(self) -> float:
        return self.now_s

    def session(self) -> Any:
        session = self._store.session()
        commit = session.commit

        def slow_commit() -> None:
            self.now_s += 7
            commit()

        session.commit = slow_commit  # type: ignore[method-assign]
        return session

    async def async_session(self) -> Any:
        session = await self._store.async_session()
        commit = session.commit

        async def slow_commit() -> None:
            self.now_s += 7
            await commit()

        session.commit = slow_commit  # type: ignore[method-assign]
        return session


def run_of(values: list[bytes]) -> Run:
    records: list[Record[Any]] = [
        Record(*HERE, offset, 0, None, None, [("ottla-id", b"m-%d" % offset)], b"k", value)
        for offset, value in enumerate(values)
    ]
    return Run(topic_partition=HERE, epoch=1, route="handle", records=records, attempt=1, started_ms=0)


def delivered(store: SlowStore, run: Run, *, is_async: bool) -> RunResult:
    """The result of a handler that works for a second per record, and fails for `bad`."""
    app = App("g")

    def work(value: bytes) -> None:
        store.now_s += 1
        if value == b"bad":
            raise ValueError("bad")

    if is_async:

        @app.handler("orders", inbox=Inbox(store))  # type: ignore[arg-type]
        async def handle_async(value: bytes, transaction: Any) -> None:
            work(value)
    else:

        @app.handler("orders", inbox=Inbox(store))  # type: ignore[arg-type]
        def handle(value: bytes, transaction: Any) -> None:
            work(value)

    async def at_once() -> None:
        """Nobody else is on the loop."""

    invoker: Any = declarations_of(app).routes[0].invoker([], {})
    result = asyncio.run(invoker.deliver_async(run, at_once)) if is_async else invoker.deliver(run)
    assert isinstance(result, RunResult)
    return result


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_commit_is_time_of_the_store_and_the_handler_is_not(
    is_async: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SlowStore(sqlite_store(tmp_path))
    monkeypatch.setattr(once, "monotonic", store.clock)
    run = run_of([b"a", b"b", b"c"])

    assert delivered(store, run, is_async=is_async).done is None
    assert (run.store_s, store.now_s) == (7, 10)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_commits_record_by_record_are_time_of_the_records(
    is_async: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that fails often has short turns: each failure costs as many commits as the run has records."""
    store = SlowStore(sqlite_store(tmp_path))
    monkeypatch.setattr(once, "monotonic", store.clock)
    run = run_of([b"a", b"b", b"bad"])
    result = delivered(store, run, is_async=is_async)

    assert [record.value for record, _ in result.failures] == [b"bad"]
    assert run.store_s == 0, "nothing was committed for the run as a whole"
    assert store.now_s == 3 + 2 * 7 + 3
