"""Pulled consumers join transactions: their records are done with the commit, or come again. Both shells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from both_shells import CONSUMERS, PRODUCERS, committed_values
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ClientPartition

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, InTransactions, Producer
from ottla.errors import BrokerUnavailable, ConfigError, LifecycleError, RetriableError
from ottla.records import TopicPartition

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    config = {"group.min.session.timeout.ms": 500, "group.initial.rebalance.delay.ms": 0}
    with EmbeddedCluster(config=config) as running:
        yield running


@pytest.fixture(params=sorted(PRODUCERS))
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Flow:
    """A topic with records, a topic for what becomes of them, and a group."""

    def __init__(self, cluster: EmbeddedCluster, shell: str, name: str, partitions: int = 1) -> None:
        self.cluster = cluster
        self.shell = shell
        self.source, self.target, self.group = f"{name}-in", f"{name}-out", f"{name}-group"
        cluster.create_topic(self.source, partitions=partitions)
        cluster.create_topic(self.target)

    async def fill(self, records: int, partition: int = 0) -> None:
        def send() -> None:
            with Producer(self.cluster.bootstrap_servers) as producer:
                for number in range(records):
                    producer.send(self.source, b"%d" % number, partition=partition)

        await asyncio.to_thread(send)

    def producer(self, number: int = 1) -> Any:
        settings = {"transactional.id": f"{self.group}-{number}"}
        return PRODUCERS[self.shell](self.cluster.bootstrap_servers, settings=settings)

    def consumer(self, **named: Any) -> Any:
        named = {"commit": InTransactions(), "group": self.group, "drain_s": 2.0, **named}
        return CONSUMERS[self.shell](self.source, bootstrap_servers=self.cluster.bootstrap_servers, **named)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Any, Any]]:
        async with self.producer() as producer, self.consumer() as consumer:
            yield producer, consumer

    async def copy(self, producer: Any, consumer: Any, records: list[Any], timeout_s: float = 60) -> None:
        async with producer.transaction(timeout_s) as transaction:
            await transaction.send_offsets(records, consumer)
            for record in records:
                producer.send(self.target, record.value)

    async def committed_offset(self, partition: int = 0) -> int:
        def read() -> int:
            reader = ConfluentConsumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": self.group})
            try:
                (position,) = reader.committed([ClientPartition(self.source, partition)], 30)
                return int(position.offset)
            finally:
                reader.close()

        return await asyncio.to_thread(read)

    async def copied(self) -> list[int]:
        return [int(value or b"") for value in await committed_values(self.cluster, self.target)]


@pytest.fixture
def make_flow(cluster: EmbeddedCluster, shell: str, request: pytest.FixtureRequest) -> Callable[..., Flow]:
    return lambda **named: Flow(cluster, shell, f"f-{abs(hash(request.node.name))}", **named)


async def take(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + 60
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        records += await consumer.poll(0.2, max_records=count - len(records))
    return records


def numbers(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


@pytest.mark.representative("asyncio")
async def test_records_are_done_with_the_transaction_that_they_join(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    await flow.fill(10)
    async with flow.running() as (producer, consumer):
        await flow.copy(producer, consumer, await take(consumer, 4))
        assert await flow.committed_offset() == 4
        await flow.copy(producer, consumer, await take(consumer, 3))
        await take(consumer, 3)  # in no transaction: the group never hears of them
    assert await flow.committed_offset() == 7
    assert await flow.copied() == list(range(7))


@pytest.mark.representative("asyncio")
async def test_an_abort_gives_the_records_out_again_in_their_order(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    await flow.fill(6)

    async def fail() -> None:
        async with producer.transaction() as transaction:
            await transaction.send_offsets(records, consumer)
            await producer.send(flow.target, b"99")
            raise ZeroDivisionError

    async with flow.running() as (producer, consumer):
        await flow.copy(producer, consumer, await take(consumer, 1))
        records = await take(consumer, 3)
        for _ in range(7):  # however often: it is no attempt of the record's retry policy
            with pytest.raises(ZeroDivisionError):
                await fail()
            records = await take(consumer, 3)
            assert numbers(records) == [1, 2, 3]
        assert await flow.committed_offset() == 1
        await flow.copy(producer, consumer, records)
        await flow.copy(producer, consumer, await take(consumer, 2))
    assert await flow.copied() == list(range(6))
    assert await flow.committed_offset() == 6


@pytest.mark.representative("asyncio")
async def test_records_that_joined_no_transaction_are_not_passed_over(make_flow: Callable[..., Flow]) -> None:
    """A block that fails before it names its records leaves them behind: the next one would lose them."""
    flow = make_flow()
    await flow.fill(6)
    async with flow.running() as (producer, consumer):
        forgotten = await take(consumer, 2)
        later = await take(consumer, 2)
        with pytest.raises(
            LifecycleError, match="wanted offset 0 as well: the consumer returned it before, and it would be lost"
        ):
            await flow.copy(producer, consumer, later)
        for stale in (forgotten, later):
            with pytest.raises(RetriableError, match="no longer belongs to this consumer"):
                await flow.copy(producer, consumer, stale)
        again = await take(consumer, 6)
        assert numbers(again) == list(range(6))
        await flow.copy(producer, consumer, again)
    assert await flow.copied() == list(range(6))


async def test_one_transaction_takes_several_joins(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    await flow.fill(4)
    async with flow.running() as (producer, consumer):
        async with producer.transaction() as transaction:
            first = await take(consumer, 2)
            await transaction.send_offsets(first, consumer)
            await transaction.send_offsets(await take(consumer, 2), consumer)
            await transaction.send_offsets(first[:1], consumer)  # known already: the group does not go back
        assert await flow.committed_offset() == 4


@pytest.mark.representative("asyncio-never done")
@pytest.mark.parametrize("is_applied", [False, True], ids=["never done", "done, and the answer lost"])
async def test_a_commit_without_an_answer_neither_loses_nor_repeats(
    make_flow: Callable[..., Flow], is_applied: bool
) -> None:
    """The loop of the how-to: poll in the block, name the records first, and go on after whatever can be retried."""
    flow = make_flow()
    await flow.fill(20)
    how = {"disconnect": True, "after_apply": True} if is_applied else {"error": "COORDINATOR_LOAD_IN_PROGRESS"}
    unanswered = 0
    async with flow.running() as (producer, consumer):
        fault = flow.cluster.faults.add(api="END_TXN", transactional_id=f"{flow.group}-1", **how)
        while consumer.position(TopicPartition(flow.source, 0)) != 20:
            try:
                async with producer.transaction(timeout_s=1 if unanswered < 3 else 60) as transaction:
                    records = await consumer.poll(0.2, max_records=7)
                    await transaction.send_offsets(records, consumer)
                    for record in records:
                        producer.send(flow.target, record.value)
            except BrokerUnavailable:
                unanswered += 1
                if unanswered == 3:
                    fault.remove()
            except RetriableError:
                continue  # a busy machine kept the member from its heartbeats: the records come again
    assert unanswered == 3
    assert await flow.copied() == list(range(20))
    assert await flow.committed_offset() == 20


@pytest.mark.representative("asyncio")
async def test_a_partition_that_moved_is_not_committed_by_who_had_it(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow(partitions=2)
    await flow.fill(3, partition=0)
    await flow.fill(3, partition=1)
    async with flow.running() as (producer, consumer):
        records = await take(consumer, 6)
        async with flow.consumer() as other:
            deadline = time.monotonic() + 60
            while len(consumer.assignment()) != 1:
                assert time.monotonic() < deadline, "the second member got nothing"
                await consumer.poll(0.05)
            with pytest.raises(RetriableError):
                await flow.copy(producer, consumer, records)
            async with flow.producer(2) as second:
                await flow.copy(second, other, await take(other, 3))
            again = await take(consumer, 3)
            assert {record.partition for record in again} == {consumer.assignment()[0].partition}
            await flow.copy(producer, consumer, again)
    assert sorted(await flow.copied()) == [0, 0, 1, 1, 2, 2]
    assert [await flow.committed_offset(number) for number in range(2)] == [3, 3]


async def test_a_new_member_waits_for_the_transaction_that_holds_the_offsets(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    await flow.fill(4)
    async with flow.producer() as producer:
        transaction = producer.transaction()
        await transaction.__aenter__()
        async with flow.consumer() as first:
            await transaction.send_offsets(await take(first, 2), first)
        asked = flow.cluster.faults.add(api="OFFSET_FETCH", group=flow.group, delay_ms=1)
        async with flow.consumer() as second:
            while asked.hits < 3:  # told "not yet", it asks again
                assert await second.poll(0.05) == []
            asked.remove()
            await transaction.commit()
            assert numbers(await take(second, 2)) == [2, 3]


async def test_who_settles_by_transactions_settles_in_no_other_way(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    await flow.fill(1)
    async with flow.consumer() as consumer:
        (record,) = await take(consumer, 1)
        for settle in (
            lambda: consumer.ack(record),
            lambda: consumer.retry(record),
            lambda: consumer.dead(record, "bad"),
            lambda: consumer.failed(record, ValueError()),
        ):
            with pytest.raises(LifecycleError, match=r"committed by transactions \(commit=InTransactions\(\)\)"):
                settle()
        with pytest.raises(LifecycleError, match="committed by transactions"):
            await consumer.commit()


@pytest.mark.representative("asyncio")
async def test_records_in_the_transaction_of_a_producer_that_is_gone_are_not_given_to_another(
    make_flow: Callable[..., Flow],
) -> None:
    flow = make_flow()
    await flow.fill(2)
    async with flow.consumer() as consumer, flow.producer(2) as other:
        producer = flow.producer()
        await producer.start()
        transaction = await producer.transaction().__aenter__()
        await transaction.send_offsets(await take(consumer, 1), consumer)
        with pytest.raises(LifecycleError, match="in a transaction of another producer, whose outcome is unknown"):
            await flow.copy(other, consumer, await take(consumer, 1))
        await producer.close()  # aborts, and both come again
        await flow.copy(other, consumer, await take(consumer, 2))
    assert await flow.copied() == [0, 1]


async def test_what_would_undo_it_is_refused(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    with pytest.raises(ConfigError, match=r"dead_letter_topic: found one with commit=InTransactions\(\), wanted none"):
        flow.consumer(dead_letter_topic="dead")
    with pytest.raises(ConfigError, match=r"isolation\.level: found read_uncommitted with commit=InTransactions\(\)"):
        flow.consumer(settings={"isolation.level": "read_uncommitted"})
    with pytest.raises(ConfigError, match=r"App: commit= takes a CommitPolicy or AtMostOnce\(\), found InTransactions"):
        App("a", commit=InTransactions())  # type: ignore[arg-type]
    await flow.fill(1)
    async with flow.producer() as producer, flow.consumer(commit=None) as commits_itself:
        with pytest.raises(ConfigError, match=r"found a consumer that commits by itself, wanted .*InTransactions\(\)"):
            await flow.copy(producer, commits_itself, await take(commits_itself, 1))
    async with flow.running() as (producer, consumer):
        with pytest.raises(ConfigError, match="wanted the records that the consumer returned"):
            await flow.copy(producer, consumer, {(flow.source, 0): 1})  # type: ignore[arg-type]


async def test_a_member_of_an_older_generation_commits_nothing_on_asyncio(cluster: EmbeddedCluster) -> None:
    """aiokafka sends no generation; Ottla's request does. (librdkafka's always did.)"""
    from ottla.aio.client.transactional_groups import TransactionalMember, commit_in_transaction

    flow = Flow(cluster, "asyncio", "generations")
    await flow.fill(1)
    async with flow.running() as (producer, consumer):
        (record,) = await take(consumer, 1)
        now: TransactionalMember = await consumer._member.membership({})
        stale = TransactionalMember(
            group=now.group, generation=now.generation - 1, member_id=now.member_id, instance_id=now.instance_id
        )
        offsets = {TopicPartition(flow.source, 0): 1}
        async with producer.transaction():
            with pytest.raises(RetriableError, match="has given partitions to others"):
                await commit_in_transaction(producer._client, offsets, stale)
            await commit_in_transaction(producer._client, offsets, now)
        assert await flow.committed_offset() == record.offset + 1
