"""The consumer without a client: events in, effects out. Fair turns, bounded buffers, contiguous offsets, epochs."""

from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy, InTransactions
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.handler_rate import Rate
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.readiness.health import Health, PartitionHealth
from ottla.consumer.session import Session

__all__ = [
    "AtMostOnce",
    "CommitPolicy",
    "FlowLimits",
    "Health",
    "InTransactions",
    "Ordering",
    "PartitionHealth",
    "Rate",
    "RoutePlan",
    "Session",
]
