"""The function of each micro-batch that writes the table of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipeline.parts import DeltaSink, IcebergSink, LakeSink
from ottla.spark.writing.delta import DeltaMerger, DeltaWriter
from ottla.spark.writing.iceberg import IcebergMerger, IcebergWriter
from ottla.spark.writing.table_writer import TableWriter

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline


def table_writer(pipeline: Pipeline, sink: LakeSink) -> TableWriter:
    """Return what appends a batch to the table, or merges it by key."""
    place = table_place(pipeline, sink)
    if isinstance(sink, DeltaSink):
        if not sink.key:
            return DeltaWriter(place, partition_by=sink.partition_by)
        return DeltaMerger(
            place, key=sink.key, order_by=sink.order_by, delete=sink.delete, partition_by=sink.partition_by
        )
    assert isinstance(sink, IcebergSink)
    if not sink.key:
        return IcebergWriter(place, catalog=sink.catalog, partition_by=sink.partition_by)
    return IcebergMerger(
        place,
        catalog=sink.catalog,
        key=sink.key,
        order_by=sink.order_by,
        delete=sink.delete,
        partition_by=sink.partition_by,
    )


def table_place(pipeline: Pipeline, sink: LakeSink) -> str:
    """Return the path of a Delta table, or the name of an Iceberg table, in the pipeline's version."""
    assert isinstance(sink, DeltaSink | IcebergSink)
    return pipeline.in_version(sink.path if isinstance(sink, DeltaSink) else sink.table)
