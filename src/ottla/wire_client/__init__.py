"""A small Kafka client of plain sockets that needs nothing beyond Ottla's own requirements, and no thread of its own.

    with Cluster(wire_settings(bootstrap_servers="localhost:9092")) as cluster:
        offsets = cluster.list_offsets({TopicPartition("orders", 0): LATEST})

Its rooms: `net` (one connection, TLS, SASL), `cluster` (finds leaders and coordinators), `fetching` (reads records),
`group` (both membership protocols, sans IO, and offsets), `producing` (writes batches, in transactions or without).
`ottla.columnar` makes Arrow of what it reads, Spark's planner plans with it, `ottla.admin` and the command line ask,
read and write with it. It works in forked workers, because it keeps no thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.wire_client.client_settings import WireSettings as WireSettings
    from ottla.wire_client.client_settings import wire_settings as wire_settings
    from ottla.wire_client.cluster.cluster_client import EARLIEST as EARLIEST
    from ottla.wire_client.cluster.cluster_client import LATEST as LATEST
    from ottla.wire_client.cluster.cluster_client import Cluster as Cluster
    from ottla.wire_client.cluster.cluster_client import TopicMetadata as TopicMetadata
    from ottla.wire_client.errors import BrokerRefused as BrokerRefused
    from ottla.wire_client.errors import CorruptBatch as CorruptBatch
    from ottla.wire_client.errors import OffsetOutOfRange as OffsetOutOfRange
    from ottla.wire_client.errors import PartitionUnavailable as PartitionUnavailable
    from ottla.wire_client.errors import ResponseTooLarge as ResponseTooLarge
    from ottla.wire_client.errors import TopicRecreated as TopicRecreated
    from ottla.wire_client.fetching.position_lookup import Position as Position
    from ottla.wire_client.group.group_offsets import commit_group_offsets as commit_group_offsets
    from ottla.wire_client.group.group_offsets import group_offsets as group_offsets
    from ottla.wire_client.net.broker_connection import Connection as Connection
    from ottla.wire_client.producing.open_transactions import OpenTransaction as OpenTransaction
    from ottla.wire_client.producing.open_transactions import Outcome as Outcome
    from ottla.wire_client.producing.open_transactions import add_marker as add_marker
    from ottla.wire_client.producing.open_transactions import begin_transaction as begin_transaction
    from ottla.wire_client.producing.open_transactions import end_transaction as end_transaction
    from ottla.wire_client.producing.open_transactions import read_marker as read_marker
    from ottla.wire_client.ranges import DataLoss as DataLoss
    from ottla.wire_client.ranges import Isolation as Isolation
    from ottla.wire_client.ranges import OffsetRange as OffsetRange
    from ottla.wire_client.ranges import OnDataLoss as OnDataLoss

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.wire_client.client_settings": ["WireSettings", "wire_settings"],
        "ottla.wire_client.cluster.cluster_client": ["EARLIEST", "LATEST", "Cluster", "TopicMetadata"],
        "ottla.wire_client.errors": [
            "BrokerRefused",
            "CorruptBatch",
            "OffsetOutOfRange",
            "PartitionUnavailable",
            "ResponseTooLarge",
            "TopicRecreated",
        ],
        "ottla.wire_client.fetching.position_lookup": ["Position"],
        "ottla.wire_client.group.group_offsets": ["commit_group_offsets", "group_offsets"],
        "ottla.wire_client.net.broker_connection": ["Connection"],
        "ottla.wire_client.producing.open_transactions": [
            "OpenTransaction",
            "Outcome",
            "add_marker",
            "begin_transaction",
            "end_transaction",
            "read_marker",
        ],
        "ottla.wire_client.ranges": ["DataLoss", "Isolation", "OffsetRange", "OnDataLoss"],
    },
)
