"""The function of each micro-batch that writes the table of a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipeline.parts import DeltaSink, IcebergSink, LakeSink
from ottla.spark.writing.delta import DeltaLakeTable
from ottla.spark.writing.iceberg import IcebergTable
from ottla.spark.writing.table_writer import LakeTable, TableWriter

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline


def table_writer(pipeline: Pipeline, sink: LakeSink) -> TableWriter:
    """Return what appends a batch to the table, or merges it by key."""
    place, by = table_place(pipeline, sink), sink.partition_by
    table: LakeTable
    if isinstance(sink, DeltaSink):
        table = DeltaLakeTable(place, partition_by=by)
    else:
        assert isinstance(sink, IcebergSink)
        table = IcebergTable(place, catalog=sink.catalog, partition_by=by)
    return TableWriter(table, key=sink.key, order_by=sink.order_by, delete=sink.delete)


def table_place(pipeline: Pipeline, sink: LakeSink) -> str:
    """Return the path of a Delta table, or the name of an Iceberg table, in the pipeline's version."""
    assert isinstance(sink, DeltaSink | IcebergSink)
    return pipeline.in_version(sink.path if isinstance(sink, DeltaSink) else sink.table)
