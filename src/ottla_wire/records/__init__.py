"""Record batches, magic 2: headers without records, records, compression, checksums."""

from __future__ import annotations

from ottla_wire.records.batch import BATCH_OVERHEAD as BATCH_OVERHEAD
from ottla_wire.records.batch import BatchHeader as BatchHeader
from ottla_wire.records.batch import TimestampType as TimestampType
from ottla_wire.records.batch import check_crc as check_crc
from ottla_wire.records.batch import iter_batches as iter_batches
from ottla_wire.records.batch import iter_headers as iter_headers
from ottla_wire.records.batch import parse_header as parse_header
from ottla_wire.records.batch import patch_batch as patch_batch
from ottla_wire.records.batch import patch_log_append_time as patch_log_append_time
from ottla_wire.records.compression import MAX_DECOMPRESSED_BYTES as MAX_DECOMPRESSED_BYTES
from ottla_wire.records.compression import CompressionType as CompressionType
from ottla_wire.records.compression import DecompressionError as DecompressionError
from ottla_wire.records.compression import InflatesTooFar as InflatesTooFar
from ottla_wire.records.compression import compress as compress
from ottla_wire.records.compression import decompress as decompress
from ottla_wire.records.crc32c import crc32c as crc32c
from ottla_wire.records.record import RecordData as RecordData
from ottla_wire.records.record import Row as Row
from ottla_wire.records.record import decode_batch as decode_batch
from ottla_wire.records.record import decode_rows as decode_rows
from ottla_wire.records.record import encode_batch as encode_batch
from ottla_wire.records.record import encode_record as encode_record
from ottla_wire.records.record import iter_plain_rows as iter_plain_rows
from ottla_wire.records.record import iter_rows as iter_rows
from ottla_wire.records.record import shown_key as shown_key
