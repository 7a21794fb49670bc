"""Records out of the bytes of a Fetch response, for what another client cannot read: a header key that is not UTF-8, a
batch that it takes for corrupt. Record by record, checked, without its speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.errors import OttlaError
from ottla.records import Header, Record, TimestampType, TopicPartition
from ottla.wire_client.cluster.cluster_client import LEADER_MOVED, Cluster, refused
from ottla.wire_client.errors import CorruptBatch, PartitionUnavailable
from ottla.wire_client.fetching.transaction_filter import TransactionFilter
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode, ProtocolError
from ottla_wire.records import TimestampType as BatchTime
from ottla_wire.records import check_crc, decode_rows, iter_batches, shown_key
from ottla_wire.records.control import AbortedTransaction

MOST_PLAIN_BYTES = 16 * 1024 * 1024
"""How much a chunk decompresses before it ends at the next batch: a few kilobytes may claim gigabytes."""

_STAMPS = {
    BatchTime.CREATE_TIME: TimestampType.CREATE_TIME,
    BatchTime.LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}

_BY_NAME = 12
"""The last version of Fetch that names topics instead of their ids (KIP-516)."""


@fact
class RecordChunk:
    """Records of one partition in offset order, and where the next chunk begins.

    Gaps (compaction, aborted transactions, control records) are behind `next_offset` too.
    """

    records: list[Record[Any]]
    next_offset: int


def read_chunk(
    cluster: Cluster, place: TopicPartition, offset: int, *, most_plain_bytes: int = MOST_PLAIN_BYTES
) -> RecordChunk:
    """Return the records of one Fetch from `offset` on, as `isolation.level` shows them; an empty chunk if there are
    none yet.

    The chunk ends with the batch that brings it to `most_plain_bytes`. Raises `PartitionUnavailable` or
    `BrokerUnavailable` after `default.api.timeout.ms`, `CorruptBatch` for bytes that are not a batch, `BrokerRefused`
    for an offset that the log does not have.
    """
    entry = cluster.until(lambda: _fetch(cluster, place, offset), what=f"{place} at offset {offset}")
    aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in entry.aborted_transactions or ()]
    return decode_chunk(
        entry.records or b"", place=place, offset=offset, aborted=aborted, most_plain_bytes=most_plain_bytes
    )


def decode_chunk(
    data: bytes | bytearray | memoryview,
    *,
    place: TopicPartition,
    offset: int,
    aborted: Sequence[AbortedTransaction] = (),
    most_plain_bytes: int = MOST_PLAIN_BYTES,
) -> RecordChunk:
    """Return the records at and behind `offset` in the batches of a Fetch response, whole batches at a time.

    They end before a batch that cannot be read; CorruptBatch if that is the first.
    """
    shows = TransactionFilter(aborted).shows
    topic, partition = place
    view = memoryview(data)
    records: list[Record[Any]] = []
    next_offset = offset
    plain_bytes = 0
    try:
        for position, header in iter_batches(view):
            if not check_crc(view, position, header):
                raise ProtocolError(f"the batch at offset {header.base_offset} does not match its CRC")
            is_shown = shows(view, position, header)
            if header.next_offset <= next_offset:
                continue
            stamp = _STAMPS[header.timestamp_type]
            for offset_here, timestamp_ms, key, value, headers in decode_rows(view, position) if is_shown else ():
                plain_bytes += (0 if key is None else len(key)) + (0 if value is None else len(value))
                if offset_here >= next_offset:  # a batch may begin before it, and a forged one may be in disorder
                    shown = shown_headers(headers) if headers else None
                    records.append(
                        Record(topic, partition, offset_here, timestamp_ms, key, value, shown, key, value, stamp)  # type: ignore[arg-type]
                    )
                    next_offset = offset_here + 1
            next_offset = max(next_offset, header.next_offset)
            if plain_bytes > most_plain_bytes:
                break
    except ProtocolError as error:
        if next_offset == offset:
            raise CorruptBatch(f"{place}: nothing can be read at offset {offset}: {error}") from None
        # What is before it is whole; the next chunk begins with what is not.
    return RecordChunk(records=records, next_offset=next_offset)


def shown_headers(headers: Iterable[Header]) -> list[Header]:
    """The same headers with keys that are text: bytes that are not UTF-8 are escaped, as in `\\xff`."""
    return [header if header[0].isascii() else (shown_key(header[0]), header[1]) for header in headers]


def _fetch(cluster: Cluster, place: TopicPartition, offset: int) -> Any:
    settings = cluster.settings
    (leader,) = cluster.by_leader([place])
    connection = cluster.broker(leader, borrower=object())  # answered before anything else is asked
    wanted = {
        "partition": place.partition,
        "fetch_offset": offset,
        "partition_max_bytes": settings.max_partition_fetch_bytes,
    }
    body = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": settings.fetch_max_bytes,
        "isolation_level": settings.isolation.value,
        "topics": [{"topic": place.topic, "partitions": [wanted]}],
    }
    connection.send(ApiKey.FETCH, body, newest=_BY_NAME)
    response = connection.receive()
    for topic in response.responses:
        for entry in topic.partitions:
            code = ErrorCode.of(entry.error_code)
            if TopicPartition(topic.topic, entry.partition_index) != place:
                continue
            if code is ErrorCode.NONE:
                return entry
            if code in LEADER_MOVED:
                cluster.forget_leaders(place.topic)
                raise PartitionUnavailable(f"{place}: {code.name}")
            raise refused(f"fetch from {place} at offset {offset}", code)
    raise _unanswered(place, response)


def _unanswered(place: TopicPartition, response: Any) -> OttlaError:
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        return refused(f"fetch from {place}", code)
    return PartitionUnavailable(f"{place}: the broker's response does not contain it")
