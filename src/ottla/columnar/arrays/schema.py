"""The columns of a read: the names and types of Spark's `kafka` format, so that code moves both ways.

`timestamp` is microseconds in UTC (Spark's only timestamp unit) although Kafka counts milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ottla.errors import ConfigError

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
TIMESTAMP = pa.timestamp("us", tz="UTC")

FIELDS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}

ALL_COLUMNS = tuple(FIELDS)
SPARK_COLUMNS = tuple(name for name in FIELDS if name != "headers")
"""Columns that Spark's format shows unless `includeHeaders` is on."""


def arrow_schema(columns: Sequence[str] = ALL_COLUMNS) -> pa.Schema:
    """Return the Arrow schema of these columns, in their order. Raises `ConfigError` for a column that does not
    exist."""
    unknown = [name for name in columns if name not in FIELDS]
    if unknown:
        raise ConfigError(f"no such column: {', '.join(unknown)}; there are {', '.join(FIELDS)}")
    return pa.schema([pa.field(name, FIELDS[name]) for name in columns])
