"""Reading offset ranges of many partitions, as a stream of Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import pyarrow as pa

from ottla.columnar.arrays.schema import ALL_COLUMNS, arrow_schema
from ottla.columnar.reading.decode import Scan
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.fetching.fetched_batches import FetchedBatches
from ottla.wire_client.fetching.range_reading import batches_of_ranges
from ottla.wire_client.ranges import DataLoss, LossRule, OffsetRange, OnDataLoss


def read_ranges(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    *,
    columns: Sequence[str] = ALL_COLUMNS,
    on_data_loss: LossRule = OnDataLoss.FAIL,
    report_loss: Callable[[DataLoss], None] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Return the records of all ranges, a partition's in order, partitions mixed. Abandoning the iterator is safe."""
    arrow_schema(columns)  # a wrong name is an error here, not after the first fetch
    return _decoded(
        batches_of_ranges(cluster, ranges, on_data_loss=on_data_loss, report_loss=report_loss), cluster, columns
    )


def _decoded(
    reading: Generator[FetchedBatches, None, None], cluster: Cluster, columns: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    try:
        for found in reading:
            yield from Scan(found, ()).batches(columns, limits=cluster.settings.decode_limits)
    finally:
        reading.close()  # now, and not when it is garbage-collected: responses may be in flight
