"""Kafka to Arrow and back, without a Python object per record (extra `ottla[arrow]`).

    reader = ottla.columnar.read("orders", bootstrap_servers="localhost:9092", since="-1h")
    table = reader.read_all()                    # or reader.read_pandas(), polars.from_arrow(reader), duckdb.sql(...)
    ottla.columnar.write("orders-copy", table, bootstrap_servers="localhost:9092")

Reading joins no group and commits nothing. Writing is idempotent. Both are plain sockets without background threads,
so they also work in forked workers; Spark's source and sink are built on them.
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
    from ottla.columnar.cluster import EARLIEST as EARLIEST
    from ottla.columnar.cluster import LATEST as LATEST
    from ottla.columnar.cluster import Cluster as Cluster
    from ottla.columnar.cluster import TopicMetadata as TopicMetadata
    from ottla.columnar.errors import BrokerRefused as BrokerRefused
    from ottla.columnar.errors import CorruptBatch as CorruptBatch
    from ottla.columnar.errors import OffsetOutOfRange as OffsetOutOfRange
    from ottla.columnar.errors import PartitionUnavailable as PartitionUnavailable
    from ottla.columnar.errors import TopicRecreated as TopicRecreated
    from ottla.columnar.fetch import read_ranges as read_ranges
    from ottla.columnar.groups import commit_group_offsets as commit_group_offsets
    from ottla.columnar.groups import group_offsets as group_offsets
    from ottla.columnar.positions import Position as Position
    from ottla.columnar.produce import Written as Written
    from ottla.columnar.ranges import DataLoss as DataLoss
    from ottla.columnar.ranges import Isolation as Isolation
    from ottla.columnar.ranges import OffsetRange as OffsetRange
    from ottla.columnar.ranges import OnDataLoss as OnDataLoss
    from ottla.columnar.reader import read as read
    from ottla.columnar.schema import arrow_schema as arrow_schema
    from ottla.columnar.settings import WireSettings as WireSettings
    from ottla.columnar.settings import wire_settings as wire_settings
    from ottla.columnar.transactions import OpenTransaction as OpenTransaction
    from ottla.columnar.transactions import Outcome as Outcome
    from ottla.columnar.transactions import add_marker as add_marker
    from ottla.columnar.transactions import begin_transaction as begin_transaction
    from ottla.columnar.transactions import end_transaction as end_transaction
    from ottla.columnar.transactions import read_marker as read_marker
    from ottla.columnar.writer import TopicWriter as TopicWriter
    from ottla.columnar.writer import write as write

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.columnar.cluster": ["Cluster", "EARLIEST", "LATEST", "TopicMetadata"],
        "ottla.columnar.errors": [
            "BrokerRefused",
            "CorruptBatch",
            "OffsetOutOfRange",
            "PartitionUnavailable",
            "TopicRecreated",
        ],
        "ottla.columnar.fetch": ["read_ranges"],
        "ottla.columnar.groups": ["commit_group_offsets", "group_offsets"],
        "ottla.columnar.positions": ["Position"],
        "ottla.columnar.produce": ["Written"],
        "ottla.columnar.ranges": ["DataLoss", "Isolation", "OffsetRange", "OnDataLoss"],
        "ottla.columnar.reader": ["read"],
        "ottla.columnar.schema": ["arrow_schema"],
        "ottla.columnar.settings": ["WireSettings", "wire_settings"],
        "ottla.columnar.transactions": [
            "OpenTransaction",
            "Outcome",
            "add_marker",
            "begin_transaction",
            "end_transaction",
            "read_marker",
        ],
        "ottla.columnar.writer": ["TopicWriter", "write"],
    },
)
