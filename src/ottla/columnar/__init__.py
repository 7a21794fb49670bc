"""Kafka to Arrow and back, without a Python object per record (extra `ottla[arrow]`).

    reader = ottla.columnar.read("orders", bootstrap_servers="localhost:9092", since="-1h")
    table = reader.read_all()                    # or reader.read_pandas(), polars.from_arrow(reader), duckdb.sql(...)
    ottla.columnar.write("orders-copy", table, bootstrap_servers="localhost:9092")

    for batch in ottla.columnar.consume("orders", group="report", bootstrap_servers="localhost:9092"):
        print(polars.DataFrame(batch))           # done when the next batch is asked for, or by batch.ack()

`read` joins no group and commits nothing; `consume` does. Writing is idempotent. `read` and `write` are plain sockets
without background threads, so they also work in forked workers; Spark's source and sink are built on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.lazy import lazy_names

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ConfigError(f"ottla.columnar needs pyarrow and numpy ({error}): pip install 'ottla[arrow]'") from error

if TYPE_CHECKING:
    from ottla.columnar.arrays.schema import arrow_schema as arrow_schema
    from ottla.columnar.reading.fetch import read_ranges as read_ranges
    from ottla.columnar.reading.reader import read as read
    from ottla.columnar.serving.pulled import ColumnConsumer as ColumnConsumer
    from ottla.columnar.serving.pulled import ConsumedBatch as ConsumedBatch
    from ottla.columnar.serving.pulled import consume as consume
    from ottla.columnar.writing.writer import TopicWriter as TopicWriter
    from ottla.columnar.writing.writer import write as write
    from ottla.wire_client.client_settings import WireSettings as WireSettings
    from ottla.wire_client.client_settings import wire_settings as wire_settings
    from ottla.wire_client.cluster.cluster_client import EARLIEST as EARLIEST
    from ottla.wire_client.cluster.cluster_client import LATEST as LATEST
    from ottla.wire_client.cluster.cluster_client import Cluster as Cluster
    from ottla.wire_client.cluster.cluster_client import TopicMetadata as TopicMetadata
    from ottla.wire_client.errors import BrokerRefused as BrokerRefused
    from ottla.wire_client.errors import CorruptBatch as CorruptBatch
    from ottla.wire_client.errors import DecodeLimitExceeded as DecodeLimitExceeded
    from ottla.wire_client.errors import OffsetOutOfRange as OffsetOutOfRange
    from ottla.wire_client.errors import PartitionUnavailable as PartitionUnavailable
    from ottla.wire_client.errors import TopicRecreated as TopicRecreated
    from ottla.wire_client.fetching.position_lookup import Position as Position
    from ottla.wire_client.group.group_offsets import commit_group_offsets as commit_group_offsets
    from ottla.wire_client.group.group_offsets import group_offsets as group_offsets
    from ottla.wire_client.producing.batch_producer import Written as Written
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
        "ottla.columnar.arrays.schema": ["arrow_schema"],
        "ottla.columnar.reading.fetch": ["read_ranges"],
        "ottla.columnar.reading.reader": ["read"],
        "ottla.columnar.serving.pulled": ["ColumnConsumer", "ConsumedBatch", "consume"],
        "ottla.columnar.writing.writer": ["TopicWriter", "write"],
        "ottla.wire_client.client_settings": ["WireSettings", "wire_settings"],
        "ottla.wire_client.cluster.cluster_client": ["EARLIEST", "LATEST", "Cluster", "TopicMetadata"],
        "ottla.wire_client.errors": [
            "BrokerRefused",
            "CorruptBatch",
            "DecodeLimitExceeded",
            "OffsetOutOfRange",
            "PartitionUnavailable",
            "TopicRecreated",
        ],
        "ottla.wire_client.fetching.position_lookup": ["Position"],
        "ottla.wire_client.group.group_offsets": ["commit_group_offsets", "group_offsets"],
        "ottla.wire_client.producing.batch_producer": ["Written"],
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
