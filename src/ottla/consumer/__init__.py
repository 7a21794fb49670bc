"""The consumer without a client: events in, effects out. Fair turns, bounded buffers, contiguous offsets, epochs."""

from ottla.consumer.commits import AtMostOnce, CommitPolicy, InTransactions
from ottla.consumer.flow import FlowLimits
from ottla.consumer.health import Health, PartitionHealth
from ottla.consumer.lanes import Ordering
from ottla.consumer.plan import RoutePlan
from ottla.consumer.session import Session

__all__ = [
    "AtMostOnce",
    "CommitPolicy",
    "FlowLimits",
    "Health",
    "InTransactions",
    "Ordering",
    "PartitionHealth",
    "RoutePlan",
    "Session",
]
