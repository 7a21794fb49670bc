"""From the batches of a fetch to rows of one partition: a few stay the records that they are, many become columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.columnar.reading.decode import many_to_arrow
from ottla.columnar.reading.few import FEW, FewRow, few_rows
from ottla.columnar.reading.inflate import plain_groups
from ottla.columnar.serving.rows import RAW_COLUMNS, ArrowRows
from ottla.records import Record, TimestampType, TopicPartition
from ottla.wire_client.limits import DecodeLimits
from ottla.wire_client.segments import Batches


def are_few(found: Iterable[Batches]) -> bool:
    """Whether they are opened in less time than it takes to ask a broker for more."""
    return sum(header.record_count for batches in found for header in batches.headers) <= FEW


def opened(partition: TopicPartition, found: Batches, limits: DecodeLimits) -> Iterator[ArrowRows]:
    """All wanted records of the partition, so many at a time; none of them is empty.

    Raises `CorruptBatch` and `DecodeLimitExceeded`, when it comes to that batch.
    """
    for group in plain_groups(found, limits):
        few = few_rows(group, limits)
        if few is None:
            for batch in many_to_arrow(group, RAW_COLUMNS, limits):
                yield ArrowRows(partition, [batch])
        elif few:
            yield ArrowRows.of_few([_record(partition, row) for row in few], partition)


def _record(partition: TopicPartition, row: FewRow) -> Record[object]:
    (offset, timestamp_ms, key, value, headers), header, _ = row
    stamp = TimestampType(int(header.timestamp_type))
    shown = list(headers) or None
    return Record(*partition, offset, timestamp_ms, key, value, shown, key, value, stamp)  # type: ignore[arg-type]
