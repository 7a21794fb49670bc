"""The asyncio member and its client, where one goes on while the other waits for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka import TopicPartition as ClientPartition
from aiokafka.errors import RebalanceInProgressError
from aiokafka.structs import OffsetAndMetadata

from ottla.aio.consume.group_member import GroupMember
from ottla.app.member.member_base import MemberOptions
from ottla.app.pull.pull_plan import pull_plan
from ottla.clock import ManualClock
from ottla.config import consumer_settings
from ottla.config.priorities import Priorities
from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.model import events
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import Run, RunResult
from ottla.errors import RetriableError
from ottla.records import TopicPartition

A = TopicPartition("orders", 0)
THERE = ClientPartition("orders", 0)


class ScriptedClient:
    """One partition of a hundred records, and a coordinator that answers when it is told to."""

    def __init__(self) -> None:
        self._coordinator = self
        self.position = 0
        self.may_answer = asyncio.Event()
        self.commits: list[int] = []
        self.refusal: Exception | None = None

    async def stop(self) -> None:
        pass

    async def getmany(self, timeout_ms: int) -> dict[ClientPartition, list[Any]]:
        if self.position >= 100:
            await asyncio.sleep(timeout_ms / 1_000)
        offsets = range(self.position, min(self.position + 10, 100))
        self.position += len(offsets)
        return {THERE: [_record(offset) for offset in offsets]}

    async def fetch_committed_offsets(self, partitions: Any) -> dict[ClientPartition, OffsetAndMetadata]:
        await self.may_answer.wait()
        return {}

    async def commit(self, offsets: dict[ClientPartition, OffsetAndMetadata]) -> None:
        await self.may_answer.wait()
        if self.refusal is not None:
            raise self.refusal
        self.commits.append(offsets[THERE].offset)


def _record(offset: int) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("orders", 0, offset, 0, 0, None, b"v", None, -1, 1, [])


class NoDeadLetters:
    def write(self, letter: Write, on_written: OnWritten) -> None:
        raise AssertionError("nothing is dead-lettered")

    async def close(self, timeout_s: float) -> None:
        pass


class Pulled:
    """A member whose fetch task is the test's own."""

    def __init__(self, priorities: Priorities | None = None) -> None:
        topics = ["orders"] if priorities is None else priorities.topics
        options = MemberOptions(
            group="g",
            topics=topics,
            plans=[pull_plan(topics, 10, None, "dead", None, priorities=priorities)],
            settings=consumer_settings("localhost:9", group_id="g", environ={}),
            commits=CommitPolicy(every_records=1_000, every_s=100),
            drain_s=0,
            clock=ManualClock(),  # a run that takes long would make the next one shorter
        )
        self.member = GroupMember(options, execute={}, dead_letters=NoDeadLetters())
        self.client = self.member._client = self.member._work.client = ScriptedClient()

    async def handle_a_run(self) -> Run:
        await self.member._fetch_once()
        run = await self.member.take_run(0)
        assert run is not None
        self.member.finish(events.RunFinished(run, RunResult()))
        return run


@pytest.fixture
def pulled() -> Iterator[Pulled]:
    made = Pulled()
    yield made
    made.member._offset_poller.stop()


async def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.create_task(work)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def on_loop(test: Callable[[Pulled], Awaitable[None]]) -> Callable[[Pulled], None]:
    async def main(pulled: Pulled) -> None:
        async with asyncio.timeout(60):
            await test(pulled)

    def run(pulled: Pulled) -> None:
        asyncio.run(main(pulled))

    run.__name__ = test.__name__
    return run


@on_loop
async def test_what_is_fetched_before_the_session_knows_of_the_assignment_is_not_lost(pulled: Pulled) -> None:
    assigning = await begun(pulled.member.on_assign([A]))
    fetching = await begun(pulled.member._fetch_once())
    pulled.client.may_answer.set()
    await asyncio.gather(assigning, fetching)

    run = await pulled.member.take_run(0)
    assert run is not None
    assert [record.offset for record in run.records] == list(range(10))


@on_loop
async def test_a_commit_that_was_asked_for_and_refused_is_made_again(pulled: Pulled) -> None:
    pulled.client.may_answer.set()
    await pulled.member.on_assign([A])
    await pulled.handle_a_run()
    pulled.client.refusal = RebalanceInProgressError()
    with pytest.raises(RetriableError, match="RebalanceInProgressError"):
        await pulled.member.commit_now()
    pulled.client.refusal = None
    await pulled.member.on_revoke([A])
    assert pulled.client.commits == [10]


@on_loop
async def test_a_commit_whose_caller_waits_no_longer_comes_before_the_last_one(pulled: Pulled) -> None:
    pulled.client.may_answer.set()
    await pulled.member.on_assign([A])
    await pulled.handle_a_run()
    pulled.client.may_answer.clear()
    commit = await begun(pulled.member.commit_now())
    commit.cancel()
    await asyncio.gather(commit, return_exceptions=True)
    await pulled.handle_a_run()
    revoking = await begun(pulled.member.on_revoke([A]))
    pulled.client.may_answer.set()
    await revoking
    assert pulled.client.commits == [10, 20]


@on_loop
async def test_a_member_whose_timers_are_dead_ends_with_the_reason(pulled: Pulled) -> None:
    def cannot_fire(now_ms: int, effects: Any) -> None:
        raise RuntimeError("a timer cannot fire")

    pulled.client.position = 100
    pulled.member._session._timers.at(0, cannot_fire)

    await pulled.member._fetch_forever()
    assert str(pulled.member.error) == "a timer cannot fire"
    assert not pulled.member.is_running


def test_an_urgent_record_is_taken_in_before_those_that_were_fetched_with_it() -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            pulled.client.may_answer.set()
            pulled.client.getmany = getmany  # type: ignore[method-assign]
            await pulled.member.on_assign([TopicPartition(topic, 0) for topic in orders.topics])
            await pulled.member._fetch_once()

    async def getmany(timeout_ms: int) -> dict[ClientPartition, list[Any]]:
        found = {topic: ClientPartition(topic, 0) for topic in ("orders.bulk", "orders", "orders.urgent")}
        return {
            place: [ConsumerRecord(topic, 0, 0, 0, 0, None, b"v", None, -1, 1, [])] for topic, place in found.items()
        }

    orders = Priorities("orders", ("urgent", "normal", "bulk"))
    pulled = Pulled(orders)
    taken: list[str] = []
    step = pulled.member._session.step

    def seen(event: Any, now_ms: int) -> Any:
        if isinstance(event, events.Fetched):
            taken.append(event.topic_partition.topic)
        return step(event, now_ms)

    pulled.member._session.step = seen  # type: ignore[method-assign]
    try:
        asyncio.run(main())
    finally:
        pulled.member._offset_poller.stop()
    assert taken == ["orders.urgent", "orders", "orders.bulk"]


def test_an_urgent_record_does_not_wait_until_all_bulk_that_the_client_gave_is_taken_in() -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            pulled.client.may_answer.set()
            pulled.client.getmany = getmany  # type: ignore[method-assign]
            await pulled.member.on_assign([TopicPartition(topic, 0) for topic in orders.topics])
            await pulled.member._fetch_once()
            await pulled.member._fetch_once()
            assert "orders.urgent" in taken
            assert len(taken) < 12_000
            while len(taken) < 12_001:
                await pulled.member._fetch_once()

    async def getmany(timeout_ms: int) -> dict[ClientPartition, list[Any]]:
        assert not waits or timeout_ms == 0, "what waits to be taken in must not wait for more"
        waits.append(timeout_ms)
        topic, count = {1: ("orders.bulk", 12_000), 2: ("orders.urgent", 1)}.get(len(waits), ("", 0))
        given = [ConsumerRecord(topic, 0, at, 0, 0, None, b"v", None, -1, 1, []) for at in range(count)]
        return {ClientPartition(topic, 0): given} if given else {}

    orders = Priorities("orders", ("urgent", "normal", "bulk"))
    pulled = Pulled(orders)
    waits: list[int] = []
    taken: list[str] = []
    step = pulled.member._session.step

    def seen(event: Any, now_ms: int) -> Any:
        if isinstance(event, events.Fetched):
            taken.extend([event.topic_partition.topic] * len(event.records))
        return step(event, now_ms)

    pulled.member._session.step = seen  # type: ignore[method-assign]
    pulled.member._session.should_hold = lambda now_ms: False  # type: ignore[method-assign]
    try:
        asyncio.run(main())
    finally:
        pulled.member._offset_poller.stop()
