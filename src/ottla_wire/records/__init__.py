"""Record batches, magic 2: headers without records, records, compression, checksums."""

from __future__ import annotations

from ottla_wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    TimestampType,
    check_crc,
    iter_batches,
    iter_headers,
    parse_header,
    patch_batch,
    patch_log_append_time,
)
from ottla_wire.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    CompressionType,
    DecompressionError,
    InflatesTooFar,
    compress,
    decompress,
)
from ottla_wire.records.crc32c import crc32c
from ottla_wire.records.record import (
    RecordData,
    Row,
    decode_batch,
    decode_rows,
    encode_batch,
    encode_record,
    iter_plain_rows,
    iter_rows,
    shown_key,
)

__all__ = [
    "BATCH_OVERHEAD",
    "MAX_DECOMPRESSED_BYTES",
    "BatchHeader",
    "CompressionType",
    "DecompressionError",
    "InflatesTooFar",
    "RecordData",
    "Row",
    "TimestampType",
    "check_crc",
    "compress",
    "crc32c",
    "decode_batch",
    "decode_rows",
    "decompress",
    "encode_batch",
    "encode_record",
    "iter_batches",
    "iter_headers",
    "iter_plain_rows",
    "iter_rows",
    "parse_header",
    "patch_batch",
    "patch_log_append_time",
    "shown_key",
]
