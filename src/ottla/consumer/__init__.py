"""The consumer without a client: events in, effects out. Fair turns, bounded buffers, contiguous offsets, epochs."""

from ottla.consumer.commit.commits import AtMostOnce as AtMostOnce
from ottla.consumer.commit.commits import CommitPolicy as CommitPolicy
from ottla.consumer.commit.commits import InTransactions as InTransactions
from ottla.consumer.partitions.flow import FlowLimits as FlowLimits
from ottla.consumer.partitions.handler_rate import Rate as Rate
from ottla.consumer.partitions.lanes import Ordering as Ordering
from ottla.consumer.partitions.plan import RoutePlan as RoutePlan
from ottla.consumer.readiness.health import Health as Health
from ottla.consumer.readiness.health import PartitionHealth as PartitionHealth
from ottla.consumer.session import Session as Session
