"""Transactions of the threaded producer. `test_asyncio_transactions.py` has the same sentences."""

from __future__ import annotations

import time

import pytest

from ottla import Producer
from ottla.errors import ConfigError, DeliveryError, LifecycleError
from ottla.producer import ProducerTransactionState
from ottla.sync.produce.transaction import Transaction

TRANSACTIONAL = {"transactional.id": "billing-1"}


def state_of(producer: Producer) -> ProducerTransactionState:
    assert producer._transactions is not None
    return producer._transactions.states.state


def test_a_block_commits_and_its_records_are_acknowledged(mock_cluster: str) -> None:
    with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
        for _ in range(2):
            with producer.transaction() as transaction:
                assert isinstance(transaction, Transaction)
                deliveries = [producer.send("t", b"v", key=b"%d" % n) for n in range(10)]
            assert all(delivery.exception(0) is None for delivery in deliveries)
            assert state_of(producer) is ProducerTransactionState.READY


def test_an_exception_aborts_and_goes_on_to_the_caller(mock_cluster: str) -> None:
    def fail() -> None:
        with producer.transaction():
            producer.send("t", b"v")
            raise ZeroDivisionError

    with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(ZeroDivisionError):
            fail()
        assert state_of(producer) is ProducerTransactionState.READY
        producer.flush()  # what an aborted transaction did not deliver is not a failure
        with producer.transaction():
            producer.send("t", b"again")


def test_sending_outside_a_transaction_is_refused(mock_cluster: str) -> None:
    with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(LifecycleError, match=r"wanted to send; open one with `with producer.transaction\(\):`"):
            producer.send("t", b"v")
        with pytest.raises(LifecycleError, match="wanted to send"):
            producer.send_many("t", [(b"v",)])


def test_transactions_do_not_nest(mock_cluster: str) -> None:
    def nest() -> None:
        with producer.transaction(), producer.transaction():
            pass

    with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(LifecycleError, match="commit or abort the open transaction first"):
            nest()
        assert state_of(producer) is ProducerTransactionState.READY


def test_a_transaction_needs_an_id(mock_cluster: str) -> None:
    with (
        Producer(mock_cluster) as producer,
        pytest.raises(ConfigError, match=r"transactional\.id: found nothing, wanted a name that only this"),
    ):
        producer.transaction()


def test_offsets_need_the_consumer_that_read_the_records(mock_cluster: str) -> None:
    with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with producer.transaction() as transaction:
            with pytest.raises(ConfigError, match="send_offsets: found 'group', wanted the consumer"):
                transaction.send_offsets({("in", 0): 1}, "group")
            transaction.abort()
        assert state_of(producer) is ProducerTransactionState.READY


def test_consumed_offsets_go_with_the_transaction(mock_cluster: str) -> None:
    from confluent_kafka import Consumer as ConfluentConsumer

    with Producer(mock_cluster, settings={"allow.auto.create.topics": True}) as filler:
        filler.send("in", b"v").result(10)
    consumer = ConfluentConsumer({"bootstrap.servers": mock_cluster, "group.id": "g", "log_level": 0})
    consumer.subscribe(["in"])
    deadline = time.monotonic() + 20
    try:
        while not consumer.assignment():
            consumer.poll(0.05)
            assert time.monotonic() < deadline
        with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
            with producer.transaction() as transaction:
                producer.send("out", b"v")
                transaction.send_offsets({("in", 0): 7}, consumer)
            assert state_of(producer) is ProducerTransactionState.READY
    finally:
        consumer.close()


def test_a_record_that_was_not_delivered_aborts_the_transaction(mock_cluster: str) -> None:
    with Producer(mock_cluster, settings=TRANSACTIONAL) as producer:
        with pytest.raises(DeliveryError, match="found partition 99, wanted one that the topic has"):
            send_to_missing_partition(producer)
        assert state_of(producer) is ProducerTransactionState.READY
        with producer.transaction():
            producer.send("t", b"v")


def send_to_missing_partition(producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"v", partition=0).result(10)
        producer.send("t", b"v", partition=99)


def test_closing_leaves_no_transaction_open(mock_cluster: str) -> None:
    producer = Producer(mock_cluster, settings=TRANSACTIONAL)
    producer.transaction().__enter__()
    producer.send("t", b"v")
    producer.close()
    assert state_of(producer) is ProducerTransactionState.READY
