"""The records inside a batch. Only compaction, time lookup, coordinators and tests open one, never the hot path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla_wire.protocol.exceptions import ProtocolError, SchemaError
from ottla_wire.protocol.primitives import decode_varint, encode_varint
from ottla_wire.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    DELETE_HORIZON_FLAG,
    HEADER,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    parse_header,
)
from ottla_wire.records.compression import MAX_DECOMPRESSED_BYTES, CompressionType, compress, decompress
from ottla_wire.records.crc32c import crc32c

Buffer = bytes | bytearray | memoryview
RecordHeader = tuple[str, bytes | None]
"""A key and a value. A key that is not UTF-8 keeps its bytes as lone surrogates (PEP 383): what was decoded is encoded
to the same bytes again. `shown_key` makes text of it."""

LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, null key, null value, no headers
NO_TIMESTAMP = -1

_UINT32 = Struct(">I")


class RecordData(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[RecordHeader] = ()


Row: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[RecordHeader]]
"""The fields of a `RecordData` in its order. A plain tuple is made in a sixth of the time."""


def decode_batch(buffer: Buffer, position: int = 0, *, max_size: int = MAX_DECOMPRESSED_BYTES) -> list[RecordData]:
    """Return all records of the batch at `position`, decompressed. The CRC is not checked here: see `check_crc`."""
    rows = decode_rows(buffer, position, max_size=max_size)
    return [RecordData(offset, at, key, value, headers or []) for offset, at, key, value, headers in rows]


def decode_rows(buffer: Buffer, position: int = 0, *, max_size: int = MAX_DECOMPRESSED_BYTES) -> list[Row]:
    """As `decode_batch`, for those who go through many records: plain tuples."""
    return [row for rows in iter_rows(buffer, position, max_size=max_size) for row in rows]


def iter_rows(
    buffer: Buffer, position: int = 0, *, max_size: int = MAX_DECOMPRESSED_BYTES, at_once: int = 10_000
) -> Iterator[list[Row]]:
    """As `decode_rows`, so many at a time: a batch of a few kilobytes may hold millions of records."""
    header = parse_header(buffer, position)
    size = header.size_in_bytes
    if header.magic != MAGIC:
        raise ProtocolError(f"magic {header.magic}, wanted {MAGIC}", message="record batch", position=position)
    if not BATCH_OVERHEAD <= size <= len(buffer) - position:
        raise ProtocolError(
            f"a batch of {size} bytes in {len(buffer) - position}", message="record batch", position=position
        )
    payload = memoryview(buffer)[position + BATCH_OVERHEAD : position + size]
    plain = decompress(header.compression, payload, max_size) if header.compression else bytes(payload)
    yield from iter_plain_rows(plain, header, at_once=at_once)


def iter_plain_rows(plain: bytes, header: BatchHeader, *, at_once: int = 10_000) -> Iterator[list[Row]]:
    """As `iter_rows`, of the bytes behind a batch's header when they are decompressed."""
    count = header.record_count
    if count < 0 or count * LEAST_RECORD_BYTES > len(plain):
        raise ProtocolError(f"{count} records cannot fit into {len(plain)} bytes", message="record batch")
    p = 0
    for first in range(0, count, at_once):
        rows, p = _decode_rows(plain, p, min(at_once, count - first), header)
        yield rows
    if p != len(plain):
        left = len(plain) - p
        raise ProtocolError(f"{left} bytes are left behind {count} records", message="record batch", position=p)


def _decode_rows(data: bytes, p: int, count: int, header: BatchHeader) -> tuple[list[Row], int]:
    """Return the records as rows, and the position behind them.

    One loop without a call per field: varints of one and two bytes, nearly all of them, are read in line. A field's
    length is not checked against the record's end when it is read; one that overruns leaves `p` beyond the end, and
    that is checked.
    """
    base_offset = header.base_offset
    is_stamped_by_broker = header.attributes & LOG_APPEND_TIME_FLAG
    base_timestamp = header.max_timestamp if is_stamped_by_broker else header.base_timestamp
    available = len(data)
    rows: list[Row] = []
    append = rows.append
    try:
        for _ in range(count):
            start = p
            n = data[p]
            p += 1
            if n > 127:
                more = data[p]
                if more > 127:
                    size, p = decode_varint(data, start)
                    n = 0 if size >= 0 else 1
                else:
                    p += 1
                    n += (more << 7) - 128
                    size = n >> 1
            else:
                size = n >> 1
            end = p + size
            if n & 1 or end > available:
                raise ProtocolError(f"a record of {-1 if n & 1 else size} bytes", message="record batch", position=p)
            p += 1  # the attributes, which are unused
            n = data[p]
            p += 1
            if n > 127:
                more = data[p]
                if more > 127:
                    timestamp, p = decode_varint(data, p - 1)
                else:
                    p += 1
                    n += (more << 7) - 128
                    timestamp = (n >> 1) ^ -(n & 1)
            else:
                timestamp = (n >> 1) ^ -(n & 1)
            n = data[p]
            p += 1
            if n > 127:
                more = data[p]
                if more > 127:
                    offset, p = decode_varint(data, p - 1)
                else:
                    p += 1
                    n += (more << 7) - 128
                    offset = (n >> 1) ^ -(n & 1)
            else:
                offset = (n >> 1) ^ -(n & 1)
            n = data[p]
            key: bytes | None
            if n > 127 or n & 1:
                key, p = _decode_bytes(data, p)
            else:
                behind = p + 1 + (n >> 1)
                key = data[p + 1 : behind]
                p = behind
            n = data[p]
            value: bytes | None
            if n & 1:  # null, or of a strange length
                value, p = _decode_bytes(data, p)
            elif n > 127:
                more = data[p + 1]
                if more > 127:
                    value, p = _decode_bytes(data, p)
                else:
                    p += 2
                    behind = p + ((n + (more << 7) - 128) >> 1)
                    value = data[p:behind]
                    p = behind
            else:
                behind = p + 1 + (n >> 1)
                value = data[p + 1 : behind]
                p = behind
            headers: Sequence[RecordHeader] = ()
            if data[p]:
                headers, p = _decode_headers(data, p, end)
            else:
                p += 1
            if p != end:
                raise ProtocolError(
                    f"it announced {size} bytes and has {p - end + size}", message="record", position=end - size
                )
            append(
                (
                    base_offset + offset,
                    base_timestamp if is_stamped_by_broker else base_timestamp + timestamp,
                    key,
                    value,
                    headers,
                )
            )
    except IndexError:
        raise ProtocolError("a record is cut off", message="record batch", position=p) from None
    return rows, p


def _decode_headers(data: bytes, p: int, end: int) -> tuple[list[RecordHeader], int]:
    count, p = decode_varint(data, p)
    if count < 0 or count * 2 > end - p:
        raise ProtocolError(f"{count} headers", message="record", field="headers", position=p)
    headers: list[RecordHeader] = []
    for _ in range(count):
        n = data[p]
        name: bytes | None
        if n > 127 or n & 1:  # long, null, or of a strange length
            name, p = _decode_bytes(data, p)
            if name is None:
                raise ProtocolError("it is null", message="record", field="header key", position=p)
        else:
            behind = p + 1 + (n >> 1)
            name = data[p + 1 : behind]
            p = behind
        n = data[p]
        content: bytes | None
        if n > 127 or n & 1:
            content, p = _decode_bytes(data, p)
        else:
            behind = p + 1 + (n >> 1)
            content = data[p + 1 : behind]
            p = behind
        headers.append((str(name, "utf-8", "surrogateescape"), content))
    return headers, p


def shown_key(key: str) -> str:
    """A header's key as text that can be printed and sent: bytes that are not UTF-8 are shown as `\\xff`."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _decode_bytes(data: bytes, p: int) -> tuple[bytes | None, int]:
    size = data[p]
    if size < 128:
        p += 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, p = decode_varint(data, p)
    if size < 0:
        if size != -1:
            raise ProtocolError(f"a length of {size}", message="record", position=p)
        return None, p
    return data[p : p + size], p + size


def encode_batch(
    records: Iterable[RecordData],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: int = TimestampType.CREATE_TIME,
    last_offset: int | None = None,
    max_timestamp_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return one batch. Records keep their own offsets, which must not fall below `base_offset` or descend.

    The last three are for compaction: it drops records but keeps the batch's last offset and, in a batch whose
    tombstones wait for their end, stores when that is.
    """
    given = list(records)
    if not given and last_offset is None:
        raise SchemaError("a batch without records needs last_offset")
    base_timestamp = given[0].timestamp_ms if given else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    pieces: list[bytes] = []
    previous = base_offset - 1
    newest = NO_TIMESTAMP
    for record in given:
        if record.offset <= previous:
            raise SchemaError(f"offset {record.offset} behind {previous}: offsets of a batch ascend from {base_offset}")
        previous = record.offset
        newest = max(newest, record.timestamp_ms)
        encode_record(record, record.offset - base_offset, record.timestamp_ms - base_timestamp, pieces)
    payload = b"".join(pieces)
    if compression:
        payload = compress(compression, payload)
    attributes = (
        int(compression)
        | (LOG_APPEND_TIME_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    head = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(
        head,
        0,
        base_offset,
        BATCH_OVERHEAD - LOG_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        (previous if last_offset is None else last_offset) - base_offset,
        base_timestamp,
        newest if max_timestamp_ms is None else max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(given),
    )
    crc = crc32c(payload, crc32c(bytes(head[CRC_COVERS_FROM:])))
    _UINT32.pack_into(head, CRC_COVERS_FROM - 4, crc)
    return bytes(head) + payload


def encode_record(record: RecordData, offset_delta: int, timestamp_delta: int, pieces: list[bytes]) -> None:
    """Append the bytes of one record, as they stand in a batch."""
    _, _, key, value, headers = record
    parts = [b"\0", _varint(timestamp_delta), _varint(offset_delta)]  # the first byte is attributes: unused
    parts += (_NULL,) if key is None else (_varint(len(key)), key)
    parts += (_NULL,) if value is None else (_varint(len(value)), value)
    parts.append(_varint(len(headers)))
    if headers:
        parts.append(encode_headers(headers))
    body = b"".join(parts)
    pieces += (_varint(len(body)), body)


def encode_headers(headers: Iterable[RecordHeader]) -> bytes:
    """Return headers as they stand in a record, without their number."""
    parts: list[bytes] = []
    for name, content in headers:
        named = name.encode("utf-8", "surrogateescape")
        parts += (_varint(len(named)), named)
        parts += (_NULL,) if content is None else (_varint(len(content)), content)
    return b"".join(parts)


_NULL = b"\x01"
_varint = lru_cache(maxsize=1 << 14)(encode_varint)
"""Lengths and deltas of records are few and small: to find one again takes a fifth of making it."""

varint = _varint
"""A signed number as it stands in a record."""
