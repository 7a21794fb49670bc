"""The trace context of records as a column, from the header `traceparent` (W3C).

    traced = ottla.spark.with_trace_context(ottla.spark.read_stream(spark, "orders", ..., includeHeaders=True))
    traced.where("trace_context.is_sampled").select("offset", "trace_context.trace_id")

In Spark's own expressions: rows do not go through Python for it. Works with frames of Spark's own connector too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError
from ottla.telemetry.traces.propagation import TRACEPARENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TRACE_COLUMN: Final = "trace_context"

# What OpenTelemetry's propagator takes: version 00 ends after the flags, later ones may go on, ff is none.
_FORM: Final = (
    "^[ \\t]*(?:00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
    "|(?!00|ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?)[ \\t]*$"
)


def with_trace_context(frame: DataFrame) -> DataFrame:
    """Return `frame` and the column `trace_context`: `trace_id`, `span_id`, `is_sampled`, `tracestate`.

    It is null where a record has no trace context, or none that can be read. Needs the column `headers`.

    Raises `ConfigError` without that column.
    """
    from pyspark.sql import functions as f

    if "headers" not in frame.columns:
        raise ConfigError("with_trace_context: needs the column headers (read with option includeHeaders=true)")
    if TRACE_COLUMN in frame.columns:
        raise ConfigError(f"with_trace_context: there is a column {TRACE_COLUMN} already")
    text = _first(TRACEPARENT)
    trace_id, span_id, flags = (
        f.concat(f.regexp_extract(text, _FORM, group), f.regexp_extract(text, _FORM, group + 3)) for group in (1, 2, 3)
    )
    is_context = (f.length(trace_id) == 32) & trace_id.rlike("[^0]") & span_id.rlike("[^0]")
    context = f.struct(
        trace_id.alias("trace_id"),
        span_id.alias("span_id"),
        flags.rlike("[13579bdf]$").alias("is_sampled"),
        _first("tracestate").alias("tracestate"),
    )
    return frame.withColumn(TRACE_COLUMN, f.when(is_context, context))


def _first(name: str) -> Column:
    """Return the first header of this name that has a value, as text."""
    from pyspark.sql import functions as f

    found = f.expr(f"filter(headers, header -> header.key = '{name}' AND header.value IS NOT NULL)")
    return f.get(found, f.lit(0)).getField("value").cast("string")
