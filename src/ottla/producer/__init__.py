"""Decisions about sending: record size and limits, partitions, deliveries, transactions. No client, no socket."""

from ottla.producer.deliveries import DeliveryFailure, DeliveryReport, DeliveryTracker, delivery_error, unsettled
from ottla.producer.limits import Limit, LimitsCache, limit_from_config
from ottla.producer.partitioners import (
    PARTITIONERS,
    CustomPartitioner,
    NullKeysInOnePartition,
    Partitioner,
    make_partitioner,
)
from ottla.producer.size import size_in_own_batch, size_of_record
from ottla.producer.transaction_failures import TransactionFailures
from ottla.producer.transactions import TRANSITIONS, ProducerTransactionState, TransactionEvent, TransactionStates

__all__ = [
    "PARTITIONERS",
    "TRANSITIONS",
    "CustomPartitioner",
    "DeliveryFailure",
    "DeliveryReport",
    "DeliveryTracker",
    "Limit",
    "LimitsCache",
    "NullKeysInOnePartition",
    "Partitioner",
    "ProducerTransactionState",
    "TransactionEvent",
    "TransactionFailures",
    "TransactionStates",
    "delivery_error",
    "limit_from_config",
    "make_partitioner",
    "size_in_own_batch",
    "size_of_record",
    "unsettled",
]
