"""Decisions about sending: record size and limits, partitions, deliveries, transactions. No client, no socket."""

from ottla.producer.deliveries import DeliveryFailure as DeliveryFailure
from ottla.producer.deliveries import DeliveryReport as DeliveryReport
from ottla.producer.deliveries import DeliveryTracker as DeliveryTracker
from ottla.producer.deliveries import delivery_error as delivery_error
from ottla.producer.deliveries import unsettled as unsettled
from ottla.producer.limits import Limit as Limit
from ottla.producer.limits import LimitsCache as LimitsCache
from ottla.producer.limits import limit_from_config as limit_from_config
from ottla.producer.partitioners import PARTITIONERS as PARTITIONERS
from ottla.producer.partitioners import CustomPartitioner as CustomPartitioner
from ottla.producer.partitioners import NullKeysInOnePartition as NullKeysInOnePartition
from ottla.producer.partitioners import Partitioner as Partitioner
from ottla.producer.partitioners import make_partitioner as make_partitioner
from ottla.producer.size import size_in_own_batch as size_in_own_batch
from ottla.producer.size import size_of_record as size_of_record
from ottla.producer.transaction_failures import TransactionFailures as TransactionFailures
from ottla.producer.transactions import TRANSITIONS as TRANSITIONS
from ottla.producer.transactions import ProducerTransactionState as ProducerTransactionState
from ottla.producer.transactions import TransactionEvent as TransactionEvent
from ottla.producer.transactions import TransactionStates as TransactionStates
