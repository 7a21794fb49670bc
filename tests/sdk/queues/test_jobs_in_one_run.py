"""A worker handles queued jobs in one run, and each of them is settled by itself, before the next begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from ottla import App, Dead, Json
from ottla.aio.consume.queue_member import AsyncQueueMember
from ottla.app.app import declarations_of
from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.queue_options import QueueOptions
from ottla.clock import ManualClock
from ottla.config import consumer_settings
from ottla.consumer.model import events
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import RunResult
from ottla.current_task import is_on_event_loop
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import ShareAnswer, SharePartitionAnswer
from ottla.queues.core.lease import Lease, LeaseState
from ottla.records import Header, Record
from ottla.sync.consume.queue_member import ThreadedQueueMember
from ottla.topics import TopicPartition

NODE, PLACE = 1, Place(b"t" * 16, 0)
SETTINGS = consumer_settings("localhost:9", group_id="g", environ={})  # nothing is started: there is no broker to ask
CONCURRENCY = 8


def record(offset: int, *, value: bytes | None = None, headers: list[Header] | None = None) -> Record[Any]:
    raw = b"%d" % offset if value is None else value
    return Record(
        topic="jobs", partition=0, offset=offset, timestamp_ms=1, key=None, value=raw, headers=headers or [],
        raw_key=None, raw_value=raw,
    )  # fmt: skip


class RefusedDeadLetters:
    """A dead letter topic that takes no record. `on_loop` has of each attempt whether an event loop waited for it."""

    def __init__(self) -> None:
        self.on_loop: list[bool] = []

    def write(self, letter: Write, on_written: OnWritten) -> None:
        self.on_loop.append(is_on_event_loop())
        on_written(letter, "the topic takes no record")

    def close(self, timeout_s: float) -> None:
        pass


class Worker:
    """A member whose only worker is this test."""

    def __init__(
        self,
        handler: Callable[[int], Any],
        *records: Record[Any],
        delivery_count: int = 1,
        member_type: type[ThreadedQueueMember | AsyncQueueMember] = ThreadedQueueMember,
    ) -> None:
        self.clock = ManualClock()
        self.dead_letters = RefusedDeadLetters()
        app = App("g", dead_letter_topic="dead")
        app.queue("jobs", value=Json(int), concurrency=CONCURRENCY)(handler)
        [route] = declarations_of(app).routes
        self.invoker = route.invoker([], {})
        self.member = member_type(
            MemberOptions(group="g", topics=["jobs"], plans=[route.plan()], settings=SETTINGS, clock=self.clock),
            queue=QueueOptions(max_attempts=3, max_job_ms=600_000, start="earliest"),
            execute={},
            dead_letters=self.dead_letters,
        )
        if isinstance(self.member, AsyncQueueMember):
            self.member._loop = asyncio.get_running_loop()
        self.client = self.member._client
        self.client.member.lead({NODE: [(PLACE, TopicPartition("jobs", 0))]})
        request = self.client.member.next_request(NODE, self.client.now_ms())
        assert request is not None
        acquired = [(each.offset, each.offset, delivery_count) for each in records]
        part = SharePartitionAnswer(place=PLACE, acquired=acquired, records={each.offset: each for each in records})
        answer = ShareAnswer(lock_ms=600_000, partitions=[part])
        self.client.perform(self.client.member.answered(NODE, answer, self.client.now_ms()))
        self.leases: dict[int, Lease] = dict(self.client.member.leases.of_place(PLACE))

    def begin(self) -> JobRun:
        run = self.member._run_of(self.member._workers.poll())
        assert self.client.begin(run.lease)
        return run

    def handle(self, run: JobRun) -> RunResult:
        result = self.invoker.deliver(run)
        assert isinstance(result, RunResult)
        return result

    def finish(self, run: JobRun, result: RunResult) -> JobRun | None:
        following = self.member._step(events.RunFinished(run, result), takes_run=True)
        assert following is None or isinstance(following, JobRun)
        return following

    def states(self) -> list[LeaseState]:
        return [lease.state for lease in self.leases.values()]

    def queued(self) -> int:
        found = 0
        while self.member._workers.poll() is not None:
            found += 1
        return found


DONE, AT_WORK = LeaseState.SETTLING, LeaseState.RUNNING


async def breathe() -> None:
    pass


def test_each_job_is_accepted_before_the_next_of_its_run_begins() -> None:
    seen: list[tuple[int, list[LeaseState], list[bool]]] = []

    def handle(value: int) -> None:
        seen.append((value, worker.states(), [lease.has_begun for lease in worker.leases.values()]))

    worker = Worker(handle, record(0), record(1), record(2))
    run = worker.begin()
    result = worker.handle(run)
    assert seen == [
        (0, [AT_WORK, AT_WORK, AT_WORK], [True, False, False]),
        (1, [DONE, AT_WORK, AT_WORK], [True, True, False]),
        (2, [DONE, DONE, AT_WORK], [True, True, True]),
    ]
    assert worker.finish(run, result) is None
    assert worker.states() == [DONE, DONE, DONE]
    assert worker.client.member.work.busy == 0
    sent = worker.client.member._sessions[NODE].pending.take()[PLACE]
    assert [tuple(each) for each in sent.ranges] == [(0, 2, Acknowledgement.ACCEPT)]


def test_a_job_that_fails_is_the_last_of_its_run_and_fails_alone() -> None:
    seen: list[int] = []

    def handle(value: int) -> None:
        seen.append(value)
        if value == 1:
            raise ValueError("no")

    worker = Worker(handle, record(0), record(1), record(2))
    run = worker.begin()
    result = worker.handle(run)
    assert [failed.offset for failed, _ in result.failures] == [1]
    worker.finish(run, result)
    assert seen == [0, 1]
    assert worker.states() == [DONE, LeaseState.WAITING, AT_WORK]
    following = worker.begin()
    assert (following.record.offset, following.attempt) == (2, 1)


def test_a_value_that_cannot_be_decoded_fails_its_job_alone() -> None:
    seen: list[int] = []
    worker = Worker(lambda value: seen.append(value), record(0), record(1, value=b"{"), record(2))
    run = worker.begin()
    result = worker.handle(run)
    assert [(failed.offset, failure.kind) for failed, failure in result.failures] == [(1, "malformed")]
    assert (seen, worker.states()[0], worker.queued()) == ([0], DONE, 1)


def test_a_job_that_takes_long_ends_its_run() -> None:
    seen: list[int] = []

    def handle(value: int) -> None:
        seen.append(value)
        if value == 1:
            worker.clock.advance(100)

    worker = Worker(handle, record(0), record(1), record(2))
    run = worker.begin()
    result = worker.handle(run)
    assert seen == [0, 1]
    following = worker.finish(run, result)
    assert following is not None
    assert following.record.offset == 2
    assert worker.states() == [DONE, DONE, AT_WORK]


def test_a_run_ends_when_the_lease_of_its_job_is_lost() -> None:
    seen: list[int] = []

    def handle(value: int) -> None:
        seen.append(value)
        if value == 1:
            worker.client.perform(worker.client.member.disconnected(NODE, "gone", worker.client.now_ms()))
            assert not run.is_owner

    worker = Worker(handle, record(0), record(1), record(2))
    run = worker.begin()
    result = worker.handle(run)
    assert worker.finish(run, result) is None
    assert seen == [0, 1]
    assert set(worker.states()) == {LeaseState.LOST}


def test_a_job_waits_for_what_its_handler_returned_before_another_begins() -> None:
    promise: Future[int] = Future()
    seen: list[int] = []

    def handle(value: int) -> Any:
        seen.append(value)
        return promise

    worker = Worker(handle, record(0), record(1))
    waiting: Any = worker.invoker.deliver(worker.begin())
    assert not isinstance(waiting, RunResult)
    assert (seen, worker.queued()) == ([0], 1)
    assert worker.states() == [AT_WORK, AT_WORK]


@pytest.mark.parametrize("delivery_count", [1, 2])
def test_a_job_that_may_expire_or_is_no_first_delivery_has_a_run_of_its_own(delivery_count: int) -> None:
    seen: list[int] = []
    expires: list[Header] = [(EXPIRES_HEADER, b"9" * 14)] if delivery_count == 1 else []
    worker = Worker(
        lambda value: seen.append(value), record(0), record(1, headers=expires), delivery_count=delivery_count
    )
    run = worker.begin()
    result = worker.handle(run)
    assert seen == [0]
    following = worker.finish(run, result)
    assert following is not None
    assert (following.record.offset, following.attempt) == (1, delivery_count)


def test_a_job_for_another_run_is_queued_again_when_the_lease_before_it_is_lost() -> None:
    worker = Worker(lambda value: None, record(0), record(1, headers=[(EXPIRES_HEADER, b"9" * 14)]))
    run = worker.begin()
    result = worker.handle(run)
    assert worker.queued() == 0
    with worker.client.lock:
        worker.client.member.settle(run.lease, Acknowledgement.RELEASE, worker.client.now_ms())
        run.is_over = True
    assert worker.finish(run, result) is None
    assert worker.queued() == 1


def test_the_jobs_of_a_run_are_handled_one_after_the_other_on_asyncio() -> None:
    seen: list[int] = []
    states: list[list[LeaseState]] = []

    async def handle(value: int) -> None:
        await asyncio.sleep(0)
        seen.append(value)
        states.append(worker.states())
        if value == 1:
            raise ValueError("no")

    worker = Worker(handle, record(0), record(1), record(2))
    run = worker.begin()

    result = asyncio.run(worker.invoker.deliver_async(run, breathe))  # type: ignore[arg-type]
    assert isinstance(result, RunResult)
    assert (seen, states) == ([0, 1], [[AT_WORK] * 3, [DONE, AT_WORK, AT_WORK]])
    assert [failed.offset for failed, _ in result.failures] == [1]
    worker.finish(run, result)
    assert worker.states() == [DONE, LeaseState.WAITING, AT_WORK]


def test_a_dead_letter_is_not_written_again_on_the_loop_of_async_handlers() -> None:
    seen: list[int] = []

    async def handle(value: int) -> Dead | None:
        seen.append(value)
        return Dead("no") if value == 0 else None

    worker = Worker(handle, record(0), record(1), record(2))
    for _ in range(2):
        run = worker.begin()
        result: Any = asyncio.run(worker.invoker.deliver_async(run, breathe))
        assert isinstance(result, RunResult)
        worker.finish(run, result)
        worker.clock.advance(1_000)  # the dead letter is due again
    assert (seen, worker.states()) == ([0, 1], [LeaseState.WAITING, DONE, AT_WORK])
    assert worker.dead_letters.on_loop == [False, False]


def test_a_job_that_lasts_too_long_on_asyncio_leaves_those_done_before_it_in_its_run() -> None:
    async def handled() -> RunResult:
        async def handle(value: int) -> None:
            if value == 1:
                worker.member._timed_out(worker.leases[1])
                await asyncio.Event().wait()

        worker = Worker(handle, record(0), record(1), record(2), member_type=AsyncQueueMember)
        await asyncio.sleep(0)  # the leases come to the loop
        begun: Any = worker.member._begun
        execute = begun(lambda run: worker.invoker.deliver_async(run, breathe))
        result = await execute(worker.member._run_of(worker.member._workers.poll()))
        assert isinstance(result, RunResult)
        return result

    result = asyncio.run(handled())
    assert result.done is not None
    assert [record.offset for record in result.done] == [0]
    assert [record.offset for record in result.untouched] == [1]


def test_a_job_that_timed_out_before_its_worker_began_is_not_counted_as_running_on() -> None:
    worker = Worker(lambda value: None, record(0))
    run = worker.member._run_of(worker.member._workers.poll())
    worker.member._timed_out(worker.leases[0])
    result = worker.member._refusal(run)
    assert result is not None
    assert worker.finish(run, result) is None
    assert worker.client.member.work.busy == 0
    assert "run on" not in " ".join(worker.member.health().problems)
