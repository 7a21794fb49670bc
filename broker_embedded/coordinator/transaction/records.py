"""Records of `__transaction_state`, to and from Kafka's schemas."""

from __future__ import annotations

from broker_embedded.common.types import TopicPartition
from ottla_wire.protocol import codec

from ..runtime.shard import CoordinatorRecord
from .states import TransactionState
from .transaction import Transaction

KEY_VERSION = 0
VALUE_VERSION = 1
"""With what KIP-890 needs, as tagged fields: Kafka writes it at transaction.version 2."""


def key_of(transactional_id: str) -> bytes:
    return codec.encode_record_value("TransactionLogKey", KEY_VERSION, {"transactional_id": transactional_id})


def encode(transaction: Transaction) -> CoordinatorRecord:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    is_open = transaction.state is not TransactionState.EMPTY
    body = {
        "producer_id": transaction.producer_id,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": int(transaction.state),
        "transaction_partitions": (
            [{"topic": topic, "partition_ids": numbers} for topic, numbers in topics.items()] if is_open else None
        ),
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.start_ms,
        "client_transaction_version": transaction.client_version,
    }
    value = codec.encode_record_value("TransactionLogValue", VALUE_VERSION, body)
    return CoordinatorRecord(key_of(transaction.transactional_id), value)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(key_of(transactional_id), None)


def decode(record: CoordinatorRecord) -> tuple[str, Transaction | None] | None:
    """Decode the transactional id and its state, None for a tombstone; None for an unknown record type."""
    if codec.record_version(record.key) != KEY_VERSION:
        return None
    _, key = codec.decode_record_value("TransactionLogKey", record.key)
    transactional_id: str = key.transactional_id
    if record.value is None:
        return transactional_id, None
    _, value = codec.decode_record_value("TransactionLogValue", record.value)
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        updated_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
