"""The records of batches that were found in a Fetch response, as plain tuples, so many at a time. Needs no Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import FetchedBatches
from ottla_wire.protocol import ProtocolError
from ottla_wire.records import CompressionType, InflatesTooFar, Row, iter_rows

AT_ONCE = 5_000
"""Records that are in memory at once."""


_NO_END = 2**63


class RecordRows(NamedTuple):
    """Records of one batch, in offset order; of a batch with many, some of them."""

    topic: str
    partition: int
    is_append_time: bool
    rows: list[Row]


def rows_of(found: FetchedBatches, limits: DecodeLimits) -> Iterator[RecordRows]:
    """Yield the wanted records of these batches. Raises `CorruptBatch` or `DecodeLimitExceeded` at the batch that
    is."""
    for number, (header, segment, position) in enumerate(
        zip(found.headers, found.segments, found.positions, strict=True)
    ):
        start = segment.start
        end = _NO_END if segment.end is None else segment.end
        is_whole = header.base_offset >= start and header.last_offset < end
        # What is behind the end is not decoded: the first few records of a batch may be all that is wanted of it.
        at_once = min(AT_ONCE, max(1, end - header.base_offset))
        try:
            for rows in iter_rows(segment.data, position, max_size=limits.batch_bytes, at_once=at_once):
                wanted = rows if is_whole else [row for row in rows if start <= row[0] < end]
                if wanted:
                    yield RecordRows(segment.topic, segment.partition, bool(header.timestamp_type), wanted)
                if rows[-1][0] >= end - 1:
                    break
        except InflatesTooFar:
            codec = CompressionType(header.compression).label
            raise DecodeLimitExceeded(
                f"{found.place(number)}: its {codec} inflates to more than {limits.batch_bytes:,} bytes, set by"
                f" decode.batch.max.bytes; the next batch begins at offset {header.next_offset}"
            ) from None
        except ProtocolError as error:
            raise CorruptBatch(f"{found.place(number)}: {error}") from error
