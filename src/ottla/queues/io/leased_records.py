"""The records of leased offsets, out of the batches that a broker sent.

A broker sends whole batches, though it leases a few records of one: the rest of the batch comes again with the next
fetches. So the batch that was decoded last is kept for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ottla.queues.core.acknowledgements import Place
from ottla.records import Record, TimestampType
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.errors import CorruptBatch, DecodeLimitExceeded
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla.wire_client.fetching.record_chunks import shown_headers
from ottla.wire_client.ranges import Isolation
from ottla_wire.protocol import ProtocolError
from ottla_wire.records import BatchHeader, Row, iter_rows

_KEPT_ROWS: Final = 50_000
"""A batch with more records is decoded again for each fetch, as far as it was leased."""


class _Kept(NamedTuple):
    header: BatchHeader
    rows: dict[int, Row]


class LeasedRecords:
    """Of one broker. Not thread-safe."""

    __slots__ = ("_kept", "_name_of", "_settings")

    def __init__(self, settings: WireSettings, name_of: Callable[[Place], TopicPartition | None]) -> None:
        self._settings = settings
        self._name_of = name_of
        self._kept: dict[Place, _Kept] = {}

    def read(
        self, place: Place, data: Any, acquired: list[tuple[int, int, int]]
    ) -> tuple[dict[int, Record[Any]], str | None]:
        """Return the records of these ranges by offset, and why some of them cannot be read."""
        name = self._name_of(place)
        if name is None or not data:
            return {}, None
        records: dict[int, Record[Any]] = {}
        first, last = acquired[0][0], max(end for _, end, _ in acquired)
        found = FetchedBatches()
        segment = Segment(topic=name.topic, partition=name.partition, data=memoryview(data), start=first, end=last + 1)
        corrupt: str | None = None
        try:
            # The broker leaves out what is not committed, by the group's own share.isolation.level.
            found.collect(segment, Isolation.READ_UNCOMMITTED, self._settings.check_crcs)
        except CorruptBatch as error:
            corrupt = str(error)
        for number, header in enumerate(found.headers):
            try:
                rows = self._rows(place, header, found, number, last)
            except (CorruptBatch, DecodeLimitExceeded, ProtocolError) as error:
                corrupt = f"{found.place(number)}: {error}"
                continue
            kind = TimestampType.LOG_APPEND_TIME if header.timestamp_type else TimestampType.CREATE_TIME
            for begin, end, _ in acquired:
                low, high = max(begin, header.base_offset), min(end, header.last_offset)
                for offset in _offsets(rows, low, high):
                    _, timestamp_ms, key, value, headers = rows[offset]
                    records[offset] = Record(
                        topic=name.topic,
                        partition=name.partition,
                        offset=offset,
                        timestamp_ms=timestamp_ms,
                        key=key,
                        value=value,
                        headers=shown_headers(headers) if headers else None,  # type: ignore[arg-type]
                        raw_key=key,
                        raw_value=value,
                        timestamp_type=kind,
                    )
        return records, corrupt

    def _rows(self, place: Place, header: BatchHeader, found: FetchedBatches, number: int, last: int) -> dict[int, Row]:
        kept = self._kept.get(place)
        if kept is not None and kept.header == header:
            return kept.rows
        segment, position = found.segments[number], found.positions[number]
        is_kept = header.last_offset > last and header.record_count <= _KEPT_ROWS
        rows: dict[int, Row] = {}
        limit = self._settings.decode_limits.batch_bytes
        for some in iter_rows(segment.data, position, max_size=limit, at_once=1_000):
            rows.update((row[0], row) for row in some)
            if not is_kept and some and some[-1][0] >= last:
                break
        if is_kept:
            self._kept[place] = _Kept(header, rows)
        else:
            self._kept.pop(place, None)
        return rows


def _offsets(rows: dict[int, Row], low: int, high: int) -> Iterator[int]:
    """Return the offsets from `low` to `high` that have a record. A leased range may be wide, and have few of them."""
    if high - low < len(rows):
        return (offset for offset in range(low, high + 1) if offset in rows)
    return (offset for offset in sorted(rows) if low <= offset <= high)
