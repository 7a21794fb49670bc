"""From the batches of a fetch to rows of one partition: a few stay the records that they are, many become columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.columnar.reading.decode import many_to_arrow
from ottla.columnar.reading.inflate import plain_groups
from ottla.columnar.reading.small_batches import SmallRow, rows_in_place, small_group_rows
from ottla.columnar.serving.rows import RAW_COLUMNS, ArrowRows
from ottla.records import Record, TimestampType, TopicPartition
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.fetching.fetched_batches import FetchedBatches
from ottla_wire.records import TimestampType as WireTimestampType

_STAMPS: Final = {int(kind): TimestampType(int(kind)) for kind in WireTimestampType}


def decode_fetch(partition: TopicPartition, found: FetchedBatches, limits: DecodeLimits) -> Iterator[ArrowRows]:
    """Yield all wanted records of the partition, so many at a time; none of them is empty.

    Raises `CorruptBatch` and `DecodeLimitExceeded`, when it comes to that batch.
    """
    rows = rows_in_place(found, limits)
    if rows is not None:
        if rows:
            yield _of_few(rows, partition)
        return
    for group in plain_groups(found, limits):
        rows = small_group_rows(group, limits)
        if rows is None:
            for batch in many_to_arrow(group, RAW_COLUMNS, limits):
                yield ArrowRows(partition, [batch])
        elif rows:
            yield _of_few(rows, partition)


def _of_few(rows: Sequence[SmallRow], partition: TopicPartition) -> ArrowRows:
    topic, number = partition
    records: list[Record[object]] = []
    for (offset, timestamp_ms, key, value, headers), header, _ in rows:
        stamp = _STAMPS[header.timestamp_type]
        shown = list(headers) or None
        records.append(
            Record(topic, number, offset, timestamp_ms, key, value, shown, key, value, stamp)  # type: ignore[arg-type]
        )
    return ArrowRows.of_few(records, partition)
