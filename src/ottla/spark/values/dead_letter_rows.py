"""Bad rows as dead letters: original key, value and headers byte for byte, and the SDK's header family.

    good, bad = ottla.spark.split(decoded)
    ottla.spark.dead_letters(bad, pipeline="orders-v1").writeStream.format("ottla").option("topic", "orders.dlq")...

One record per bad row, made in Python: dead letters are rare, and their headers must be the SDK's own, so that every
tool that shows or redrives the dead letters of a service does so with those of a pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.columnar.arrays.schema import HEADERS
from ottla.errors import ConfigError
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.spark.values.decoding import ERROR_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEEDED = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", ERROR_COLUMN)
_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary()), pa.field("headers", HEADERS)])


def dead_letters(bad: DataFrame, *, pipeline: str) -> DataFrame:
    """Return the bad rows of `split` as records (`key`, `value`, `headers`) for a dead letter topic.

    `pipeline` stands where a service's consumer group stands in its dead letters.

    Raises `ConfigError` when columns are missing.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    missing = [name for name in NEEDED if name not in bad.columns]
    if missing:
        hint = " (read with option includeHeaders=true)" if "headers" in missing else ""
        raise ConfigError(
            f"dead_letters: column {', '.join(missing)} is missing{hint}; pass the second frame of split()"
        )
    return bad.select(*NEEDED).mapInArrow(partial(_built, pipeline=pipeline), from_arrow_schema(_SCHEMA))


def _built(batches: Iterator[pa.RecordBatch], *, pipeline: str) -> Iterator[pa.RecordBatch]:
    """Run in the workers."""
    for batch in batches:
        yield build_batch(batch, pipeline=pipeline, now_ms=time.time_ns() // 1_000_000)


def build_batch(batch: pa.RecordBatch, *, pipeline: str, now_ms: int) -> pa.RecordBatch:
    """Return the dead letters of one batch of bad rows."""
    timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    rows = [
        _dead_letter(row, None if micros is None else micros // 1000, pipeline, now_ms)
        for row, micros in zip(batch.drop_columns(["timestamp"]).to_pylist(), timestamps, strict=True)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _dead_letter(row: dict[str, Any], timestamp_ms: int | None, pipeline: str, now_ms: int) -> dict[str, Any]:
    error = row[ERROR_COLUMN]
    record = build_dead_letter(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=timestamp_ms,
        key=row["key"],
        value=row["value"],
        headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
        reason=DeadLetterReason(
            kind=error["kind"],
            error_type=error["type"],
            message=f"{error['part']}: {error['message']}",
            group=pipeline,
            first_failure_ms=now_ms,
            dead_lettered_ms=now_ms,
        ),
    )
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {"key": record.key, "value": record.value, "headers": headers}
