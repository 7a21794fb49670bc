"""The function of each micro-batch that writes the Delta table of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipeline.parts import DeltaSink
from ottla.spark.writing.delta import DeltaWriter
from ottla.spark.writing.delta_merge import DeltaMerger

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline


def delta_writer(pipeline: Pipeline, sink: DeltaSink) -> DeltaWriter | DeltaMerger:
    """Return what appends a batch to the table, or merges it by key."""
    location = pipeline.in_version(sink.path)
    if not sink.key:
        return DeltaWriter(location, partition_by=sink.partition_by)
    return DeltaMerger(
        location, key=sink.key, order_by=sink.order_by, delete=sink.delete, partition_by=sink.partition_by
    )
