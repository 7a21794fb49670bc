"""What a caller may say of the records that `Consumer` and `AsyncConsumer` gave out, also when it comes too late."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import AsyncConsumer, Consumer
from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import Run
from ottla.records import Record, TopicPartition

A = TopicPartition("orders", 0)


def run_of(epoch: int, *offsets: int) -> Run:
    records: list[Record[Any]] = [Record(*A, offset, 0, None, b"v", [], None, b"v") for offset in offsets]
    return Run(topic_partition=A, epoch=epoch, route="consumer", records=records, attempt=1, started_ms=0)


class HandsOut:
    """In a member's place: the runs of a test."""

    error = None

    def __init__(self, is_async: bool) -> None:
        self.runs: deque[Run] = deque()
        self.settings: dict[str, Any] = {}
        self.finished: list[RunFinished] = []
        self._is_async = is_async

    def log_unsettled(self, *_: object) -> None:
        """A member says it in its log."""

    def take_run(self, timeout_s: float) -> Any:
        run = self.runs.popleft() if self.runs else None

        async def later() -> Run | None:
            return run

        return later() if self._is_async else run

    def finish(self, finished: RunFinished) -> None:
        self.finished.append(finished)


class Pulled:
    """A consumer of either kind that has started, called as if it were synchronous."""

    def __init__(self, kind: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.member = HandsOut(kind is AsyncConsumer)

        async def make() -> Any:
            return kind("orders", group="g", bootstrap_servers="localhost:9")

        self.consumer = loop.run_until_complete(make())
        self.consumer._member = self.member
        self.consumer._is_started = True

    def poll(self, most: int) -> list[Record[Any]]:
        async def ask() -> Any:
            records = self.consumer.poll(0.0, max_records=most)
            return await records if inspect.isawaitable(records) else records

        records: list[Record[Any]] = self._loop.run_until_complete(ask())
        return records


@pytest.fixture(params=[Consumer, AsyncConsumer])
def pulled(request: pytest.FixtureRequest) -> Iterator[Pulled]:
    loop = asyncio.new_event_loop()
    yield Pulled(request.param, loop)
    loop.close()


def offsets_of(records: list[Record[Any]]) -> list[int]:
    return [record.offset for record in records]


def test_what_is_said_of_a_record_that_is_settled_takes_nothing_back(pulled: Pulled) -> None:
    pulled.member.runs.append(run_of(1, *range(5)))
    first, second = pulled.poll(2)
    pulled.consumer.ack(first, second)
    pulled.consumer.dead(second, "too late")

    rest = pulled.poll(5)
    assert offsets_of(rest) == [2, 3, 4], "what is left of the run is given out, not forgotten"
    pulled.consumer.ack(*rest)
    (finished,) = pulled.member.finished
    assert finished.result.done is None


def test_what_is_said_of_a_record_of_an_earlier_assignment_holds_nothing_back(pulled: Pulled) -> None:
    before, after = run_of(1, *range(5)), run_of(2, *range(5))
    pulled.member.runs.append(before)
    (old,) = pulled.poll(1)
    before.is_cancelled = True  # the partition went away, and came back
    pulled.member.runs.append(after)
    (new,) = pulled.poll(1)
    pulled.consumer.ack(new)
    pulled.consumer.retry(old)

    rest = pulled.poll(5)
    assert offsets_of(rest) == [1, 2, 3, 4]
    pulled.consumer.ack(*rest)
    assert [finished.run for finished in pulled.member.finished] == [before, after]
    assert pulled.member.finished[1].result.done is None


def test_what_follows_a_record_that_failed_goes_back_with_its_run(pulled: Pulled) -> None:
    pulled.member.runs.append(run_of(1, *range(5)))
    first, second = pulled.poll(2)
    pulled.consumer.retry(first)
    assert pulled.poll(5) == []
    pulled.consumer.ack(second)

    (finished,) = pulled.member.finished
    result = finished.result
    assert (result.done, offsets_of(list(result.untouched))) == ([second], [2, 3, 4])
    assert [record for record, _ in result.failures] == [first]


class SlowDecoder:
    """A schema that is looked up at a registry."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def would_block(self, run: Run) -> bool:
        return True

    def decode(self, run: Run) -> tuple[bool, None]:
        self.has_begun.set()
        assert self.may_end.wait(30)
        return False, None


@pytest.mark.parametrize("pulled", [AsyncConsumer], indirect=True)
def test_a_poll_that_is_cancelled_while_its_run_is_decoded_gives_the_run_back(pulled: Pulled) -> None:
    pulled.consumer._decoder = decoder = SlowDecoder()
    run = run_of(1, 0, 1)
    pulled.member.runs.append(run)

    async def give_up() -> None:
        poll = asyncio.create_task(pulled.consumer.poll(30.0))
        await asyncio.to_thread(decoder.has_begun.wait, 30)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        decoder.may_end.set()
        await asyncio.get_running_loop().shutdown_default_executor()

    pulled._loop.run_until_complete(give_up())
    (finished,) = pulled.member.finished
    assert finished.run is run
    assert offsets_of(list(finished.result.untouched)) == [0, 1]
