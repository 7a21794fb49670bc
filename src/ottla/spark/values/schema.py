"""Spark's types for Arrow's: the source's columns, and what decoding gives."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

# All columns may be null, as in Spark's own connector: union and comparison of the two must not fail on flags.
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the source's schema with these columns, in their order."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])
