"""Kafka to Arrow and back, without a Python object per record (extra `ottla[arrow]`).

    reader = ottla.columnar.read("orders", bootstrap_servers="localhost:9092", since="-1h")
    table = reader.read_all()                    # or reader.read_pandas(), polars.from_arrow(reader), duckdb.sql(...)
    ottla.columnar.write("orders-copy", table, bootstrap_servers="localhost:9092")

Reading joins no group and commits nothing. Writing is idempotent. Both are plain sockets without background threads,
so they also work in forked workers; Spark's source and sink are built on them.
"""

from __future__ import annotations

from ottla.errors import ConfigError

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ConfigError(f"ottla.columnar needs pyarrow and numpy ({error}): pip install 'ottla[arrow]'") from error

from ottla.columnar.cluster import EARLIEST, LATEST, Cluster, TopicMetadata
from ottla.columnar.decode import Isolation
from ottla.columnar.errors import BrokerRefused, CorruptBatch, OffsetOutOfRange, PartitionUnavailable, TopicRecreated
from ottla.columnar.fetch import DataLoss, OffsetRange, OnDataLoss, read_ranges
from ottla.columnar.groups import commit_group_offsets, group_offsets
from ottla.columnar.positions import Position
from ottla.columnar.produce import Written
from ottla.columnar.reader import read
from ottla.columnar.schema import arrow_schema
from ottla.columnar.settings import WireSettings, wire_settings
from ottla.columnar.transactions import (
    OpenTransaction,
    Outcome,
    add_marker,
    begin_transaction,
    end_transaction,
    read_marker,
)
from ottla.columnar.writer import TopicWriter, write

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerRefused",
    "Cluster",
    "CorruptBatch",
    "DataLoss",
    "Isolation",
    "OffsetOutOfRange",
    "OffsetRange",
    "OnDataLoss",
    "OpenTransaction",
    "Outcome",
    "PartitionUnavailable",
    "Position",
    "TopicMetadata",
    "TopicRecreated",
    "TopicWriter",
    "WireSettings",
    "Written",
    "add_marker",
    "arrow_schema",
    "begin_transaction",
    "commit_group_offsets",
    "end_transaction",
    "group_offsets",
    "read",
    "read_marker",
    "read_ranges",
    "wire_settings",
    "write",
]
