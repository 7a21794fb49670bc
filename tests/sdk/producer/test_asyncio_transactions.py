"""Transactions of the asyncio producer. `test_threads_transactions.py` has the same sentences."""

from __future__ import annotations

import pytest

from ottla import AsyncProducer
from ottla.aio.produce.transaction import Transaction
from ottla.errors import BrokerUnavailable, ConfigError, DeliveryError, LifecycleError
from ottla.producer import ProducerTransactionState

TRANSACTIONAL = {"transactional.id": "billing-1"}


def state_of(producer: AsyncProducer) -> ProducerTransactionState:
    assert producer._transactions is not None
    return producer._transactions.states.state


async def test_a_block_commits_and_its_records_are_acknowledged(mock_cluster: str) -> None:
    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        for _ in range(2):
            async with producer.transaction() as transaction:
                assert isinstance(transaction, Transaction)
                deliveries = [producer.send("t", b"v", key=b"%d" % n) for n in range(10)]
            assert all(delivery.exception() is None for delivery in deliveries)
            assert state_of(producer) is ProducerTransactionState.READY


async def test_an_exception_aborts_and_goes_on_to_the_caller(mock_cluster: str) -> None:
    async def fail() -> None:
        async with producer.transaction():
            producer.send("t", b"v")
            raise ZeroDivisionError

    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert state_of(producer) is ProducerTransactionState.READY
        await producer.flush()  # what an aborted transaction did not deliver is not a failure
        async with producer.transaction():
            producer.send("t", b"again")


async def test_sending_outside_a_transaction_is_refused(mock_cluster: str) -> None:
    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(LifecycleError, match=r"wanted to send; open one with `with producer.transaction\(\):`"):
            producer.send("t", b"v")
        with pytest.raises(LifecycleError, match="wanted to send"):
            await producer.send_many("t", [(b"v",)])


async def test_transactions_do_not_nest(mock_cluster: str) -> None:
    async def nest() -> None:
        async with producer.transaction(), producer.transaction():
            pass

    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(LifecycleError, match="commit or abort the open transaction first"):
            await nest()
        assert state_of(producer) is ProducerTransactionState.READY


async def test_a_transaction_needs_an_id(mock_cluster: str) -> None:
    async with AsyncProducer(mock_cluster) as producer:
        with pytest.raises(
            ConfigError, match=r"transactional\.id: found nothing, wanted a name that only this instance"
        ):
            producer.transaction()


async def test_offsets_need_the_group_that_read_the_records(mock_cluster: str) -> None:
    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        async with producer.transaction() as transaction:
            with pytest.raises(ConfigError, match=r"send_offsets: found None, wanted the AsyncConsumer that read"):
                await transaction.send_offsets({("in", 0): 1}, None)  # type: ignore[arg-type]
            await transaction.abort()
        assert state_of(producer) is ProducerTransactionState.READY


async def test_an_abort_that_the_client_cannot_do_is_done_by_a_new_one(mock_cluster: str) -> None:
    """The mock never answers aiokafka's offsets in a way it accepts, and after that aiokafka cannot abort either."""
    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(BrokerUnavailable, match="send_offsets_to_transaction"):
            await offsets_that_are_never_settled(producer)
        assert state_of(producer) is ProducerTransactionState.READY
        async with producer.transaction():
            await producer.send("t", b"again")


async def offsets_that_are_never_settled(producer: AsyncProducer) -> None:
    async with producer.transaction(timeout_s=2) as transaction:
        producer.send("t", b"v")
        await transaction.send_offsets({("in", 0): 1}, "group")


async def test_a_record_that_was_not_delivered_aborts_the_transaction(mock_cluster: str) -> None:
    async with AsyncProducer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(DeliveryError, match="found partition 99, wanted one that the topic has"):
            await send_to_missing_partition(producer)
        assert state_of(producer) is ProducerTransactionState.READY
        async with producer.transaction():
            producer.send("t", b"v")


async def send_to_missing_partition(producer: AsyncProducer) -> None:
    async with producer.transaction():
        await producer.send("t", b"v", partition=0)
        producer.send("t", b"v", partition=99)


async def test_closing_leaves_no_transaction_open(mock_cluster: str) -> None:
    producer = AsyncProducer(mock_cluster, settings=TRANSACTIONAL)
    await producer.start()
    await producer.transaction().__aenter__()
    producer.send("t", b"v")
    await producer.close()
    assert state_of(producer) is ProducerTransactionState.READY
