"""A leader's checks of a client's batch, in Kafka's order and with Kafka's error codes.

Normally only the 61-byte header and the CRC are looked at. Records are opened only where a setting needs it: compaction
(keys), timestamps that the header shows to be out of range, `message.timestamp.before.max.ms`, another
`compression.type` than the producer's, `max.decompressed.message.bytes`, or `log.records.validation.enable`.
So a batch whose header tells the truth costs the same for one record or 10,000.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_embedded.common.config_definition import LONG_MAX
from broker_embedded.common.errors import BrokerError, RecordError
from broker_embedded.common.topic_settings import NO_DECOMPRESSED_LIMIT, TopicConfig
from broker_embedded.storage.append import AppendOrigin
from ottla_wire.protocol import ErrorCode, ProtocolError
from ottla_wire.records.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    parse_header,
)
from ottla_wire.records.compression import CompressionType, DecompressionError
from ottla_wire.records.crc32c import crc32c
from ottla_wire.records.record import NO_TIMESTAMP, RecordData, decode_batch, encode_batch

_COMPRESSION_OF = {
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
_MAX_COMPRESSION = max(CompressionType)
_SHOWN_ERRORS = 3
_LEAST_RECORD_BYTES = 7
_MOST_COMPRESSED = 1_000
"""Bytes that one byte stands for at most: records differ in their offsets, so that no codec reaches more."""


LeaderBatch = tuple[BatchHeader, memoryview]
"""The header of a batch that may be appended, and the batch: writable, exactly one long. Not always the buffer that was
given."""


def validate_for_leader(
    buffer: memoryview, *, config: TopicConfig, origin: AppendOrigin, now_ms: int, name: str
) -> LeaderBatch:
    """Return the one batch in `buffer`, or BrokerError with Kafka's code. `name` is the topic-partition, for
    messages."""
    header = whole_batch_header(buffer, name=name)
    size = header.batch_length + LOG_OVERHEAD
    is_client = origin is AppendOrigin.CLIENT
    if size < len(buffer):
        _refuse_second_batch(buffer, size, name=name)
        buffer = buffer[:size]
    if is_client and header.base_offset != 0:
        raise BrokerError(
            ErrorCode.INVALID_RECORD, f"{name}: a client's batch starts at offset 0, this one at {header.base_offset}"
        )
    if size > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{name}: the batch has {size} bytes, max.message.bytes allows {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{name}: the batch has {size} bytes, more than a whole segment (segment.bytes = {config.segment_bytes})",
        )
    refuse_wrong_crc(buffer, header, name=name)
    if is_client:
        _check_header_of_client(header, name=name)
    attributes = header.attributes
    if attributes & COMPRESSION_MASK > _MAX_COMPRESSION:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{name}: compression codec {attributes & COMPRESSION_MASK} is unknown",
        )
    if attributes & CONTROL_FLAG:
        return header, buffer
    is_create_time = not config.is_log_append_time
    wants_compression = config.compression_type != "producer"
    if (
        attributes & LOG_APPEND_TIME_FLAG
        or (is_create_time and header.max_timestamp - now_ms > config.message_timestamp_after_max_ms)
        or (is_create_time and config.message_timestamp_before_max_ms != LONG_MAX)
        or wants_compression
        or config.is_compacted
        or config.walks_records
        or (attributes & COMPRESSION_MASK and config.max_decompressed_message_bytes < NO_DECOMPRESSED_LIMIT)
    ):
        return _validate_records((header, buffer), config=config, now_ms=now_ms, name=name)
    return header, buffer


def whole_batch_header(buffer: memoryview | bytes, *, name: str) -> BatchHeader:
    """Return the header of the first batch of `buffer`, which must be whole and of magic 2."""
    length = len(buffer)
    if length > MAGIC_POSITION and (magic := buffer[MAGIC_POSITION]) != MAGIC:
        if magic < MAGIC:
            raise BrokerError(
                ErrorCode.INVALID_RECORD,
                f"{name}: message format {magic} was retired with Kafka 4 (KIP-724); use format 2",
            )
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{name}: magic {magic} in a batch, wanted {MAGIC}")
    if length < BATCH_OVERHEAD:
        raise BrokerError(
            ErrorCode.INVALID_RECORD, f"{name}: {length} bytes hold no whole record batch, wanted exactly one"
        )
    header = parse_header(buffer, 0)
    size = header.batch_length + LOG_OVERHEAD
    if size < BATCH_OVERHEAD:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"{name}: a batch of {size} bytes; the header alone has {BATCH_OVERHEAD}"
        )
    if size > length:
        raise BrokerError(
            ErrorCode.INVALID_RECORD, f"{name}: {length} bytes hold no whole record batch, its header says {size}"
        )
    return header


def refuse_wrong_crc(data: memoryview | bytes, header: BatchHeader, *, name: str) -> None:
    """Raise CORRUPT_MESSAGE unless the CRC matches. `data` is exactly one batch."""
    found = crc32c(data[CRC_COVERS_FROM:])
    if found != header.crc:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{name}: batch at offset {header.base_offset} has CRC {found:#010x}, its header says {header.crc:#010x}",
        )


def _refuse_second_batch(buffer: memoryview, size: int, *, name: str) -> None:
    """Drop bytes behind the first batch if they are a torn batch; refuse them if they are another one (KIP-98)."""
    rest = buffer[size:]
    if len(rest) >= BATCH_OVERHEAD and parse_header(rest, 0).size_in_bytes <= len(rest):
        raise BrokerError(
            ErrorCode.INVALID_RECORD, f"{name}: more than one record batch for a partition, wanted exactly one"
        )


def _check_header_of_client(header: BatchHeader, *, name: str) -> None:
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"{name}: {count} records and a last offset delta of {header.last_offset_delta}, "
            "wanted at least one record and a delta of one less",
        )
    body_bytes = header.batch_length + LOG_OVERHEAD - BATCH_OVERHEAD
    is_compressed = header.attributes & COMPRESSION_MASK
    if count * _LEAST_RECORD_BYTES > body_bytes * (_MOST_COMPRESSED if is_compressed else 1):
        raise BrokerError(ErrorCode.INVALID_RECORD, f"{name}: {count} records in {body_bytes} bytes cannot be")
    if header.attributes & CONTROL_FLAG:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"{name}: clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"{name}: sequence {header.base_sequence} of producer {header.producer_id}, wanted 0 or more",
        )


# -- with records


def _validate_records(batch: LeaderBatch, *, config: TopicConfig, now_ms: int, name: str) -> LeaderBatch:
    header, data = batch
    records = _records(data, name=name)
    errors = list(_record_errors(records, header, config=config, now_ms=now_ms))
    if errors:
        raise _refused(errors, name=name)
    newest = max(record.timestamp_ms for record in records)
    codec = header.compression
    wanted = _COMPRESSION_OF.get(config.compression_type, codec)
    if codec == wanted and newest == header.max_timestamp:
        return batch
    # Either the topic wants another compression, or the header does not tell its records' largest timestamp.
    rebuilt = encode_batch(
        records,
        compression=CompressionType(wanted),
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
    )
    return parse_header(rebuilt, 0), memoryview(bytearray(rebuilt))


def _records(data: memoryview, *, name: str) -> list[RecordData]:
    try:
        return decode_batch(data)
    except DecompressionError as error:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {error}") from error
    except ProtocolError as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"{name}: {error}") from error


def _record_errors(
    records: list[RecordData], header: BatchHeader, *, config: TopicConfig, now_ms: int
) -> Iterable[tuple[ErrorCode, RecordError]]:
    oldest = now_ms - config.message_timestamp_before_max_ms
    youngest = now_ms + config.message_timestamp_after_max_ms
    is_create_time = not config.is_log_append_time
    claims_append_time = bool(header.attributes & LOG_APPEND_TIME_FLAG)
    most_bytes = config.max_decompressed_message_bytes if header.compression else NO_DECOMPRESSED_LIMIT
    for index, record in enumerate(records):
        timestamp_ms = record.timestamp_ms
        if config.is_compacted and record.key is None:
            yield (
                ErrorCode.INVALID_RECORD,
                RecordError(index, "a record without a key cannot go into a compacted topic"),
            )
        elif most_bytes < NO_DECOMPRESSED_LIMIT and (size := _size(record)) > most_bytes:
            yield (
                ErrorCode.INVALID_RECORD,
                RecordError(index, f"{size} bytes decompressed, max.decompressed.message.bytes allows {most_bytes}"),
            )
        elif claims_append_time:
            yield (
                ErrorCode.INVALID_TIMESTAMP,
                RecordError(index, "a producer may not set the timestamp type LogAppendTime"),
            )
        elif is_create_time and timestamp_ms != NO_TIMESTAMP and not oldest <= timestamp_ms <= youngest:
            yield (
                ErrorCode.INVALID_TIMESTAMP,
                RecordError(index, f"timestamp {timestamp_ms} is out of range, wanted {oldest} to {youngest}"),
            )
        elif record.offset != header.base_offset + index:
            yield (
                ErrorCode.INVALID_RECORD,
                RecordError(index, f"offset delta {record.offset - header.base_offset}, wanted {index}"),
            )


def _size(record: RecordData) -> int:
    """Return the bytes of the record as encoded in its batch."""
    return len(encode_batch([record])) - BATCH_OVERHEAD


def _refused(errors: list[tuple[ErrorCode, RecordError]], *, name: str) -> BrokerError:
    codes = {code for code, _ in errors}
    code = ErrorCode.INVALID_TIMESTAMP if ErrorCode.INVALID_TIMESTAMP in codes else ErrorCode.INVALID_RECORD
    shown = "; ".join(f"record {error.batch_index}: {error.message}" for _, error in errors[:_SHOWN_ERRORS])
    return BrokerError(code, f"{name}: {len(errors)} refused, {shown}", record_errors=[error for _, error in errors])
