"""The five codecs of record batches, each with a limit on what it may inflate to.

A few hundred bytes of zstd or gzip can claim gigabytes. No decoder here allocates more than `max_size` (or what the
codec's best ratio makes of the input, if that is less) before it refuses.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import cramjam

from ottla_wire.compression_type import MAX_DECOMPRESSED_BYTES as MAX_DECOMPRESSED_BYTES
from ottla_wire.compression_type import CompressionType as CompressionType
from ottla_wire.protocol.exceptions import ProtocolError

Buffer = bytes | bytearray | memoryview

# What one compressed byte can yield at most: below max_size, no second look is needed.
_GZIP_MAX_RATIO = 1033
_LZ4_MAX_RATIO = 256
_SNAPPY_MAX_RATIO = 64
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4

_UINT32_BE = Struct(">I")
_UINT32_LE = Struct("<I")

# snappy-java's stream format ("xerial"), which Java clients write: magic, version, compatible version, then blocks.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024

# The frame header Kafka writes: independent blocks of 64 KiB, no checksums; the last byte is the header's checksum.
# The Java client refuses frames with dependent blocks, which is what cramjam's own frames have.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED_FLAG = 0x80000000
_LZ4_END = bytes(4)

_ZSTD_MAGIC = bytes.fromhex("28b52ffd")


class DecompressionError(ProtocolError):
    """The compressed bytes are damaged, or would inflate beyond the limit. A retry reads the same bytes."""


class InflatesTooFar(DecompressionError):
    """The compressed bytes may be whole, but would inflate beyond the limit."""


def compress(codec: CompressionType, data: Buffer) -> bytes:
    if codec == CompressionType.NONE:
        return bytes(data)
    if codec == CompressionType.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == CompressionType.SNAPPY:
        return _compress_xerial(data)
    if codec == CompressionType.LZ4:
        return _compress_lz4(data)
    return bytes(cramjam.zstd.compress(data))


def decompress(codec: CompressionType | int, data: Buffer, max_size: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the plain bytes. Raises DecompressionError for damage, and InflatesTooFar for a size beyond `max_size`."""
    name = CompressionType(codec).label if 0 <= codec <= 4 else f"codec {codec}"
    try:
        return _decompress(codec, data, max_size)
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"{name} cannot be decompressed: {error}", message="record batch") from None
    except _TooLarge:
        raise InflatesTooFar(
            f"{len(data)} bytes of {name} inflate to more than {max_size} bytes", message="record batch"
        ) from None


class _TooLarge(Exception):
    pass


def _decompress(codec: int, data: Buffer, max_size: int) -> bytes:
    if codec == CompressionType.NONE:
        if len(data) > max_size:
            raise _TooLarge
        return bytes(data)
    if codec == CompressionType.GZIP:
        return _inflate(cramjam.gzip, data, max_size, ratio=_GZIP_MAX_RATIO)
    if codec == CompressionType.SNAPPY:
        return _decompress_snappy(data, max_size)
    if codec == CompressionType.LZ4:
        return _inflate(cramjam.lz4, data, max_size, ratio=_LZ4_MAX_RATIO)
    if codec == CompressionType.ZSTD:
        return _inflate(cramjam.zstd, data, max_size, guess=_zstd_content_size(data))
    raise DecompressionError("no such codec", message="record batch")


def _inflate(module: Any, data: Buffer, max_size: int, *, ratio: int = 0, guess: int = 0) -> bytes:
    if ratio and len(data) * ratio <= max_size:
        return bytes(module.decompress(data))
    capacity = min(max_size, guess or max(_FIRST_GUESS_BYTES, len(data) * _GROWTH))
    while True:
        # A bytearray is zeroed: starting at max_size would cost 70 ms at 128 MB, so it grows with each refusal.
        output = bytearray(capacity)
        try:
            size = module.decompress_into(data, output)
            return bytes(memoryview(output)[:size])
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if capacity >= max_size:
                raise _TooLarge from None
            capacity = min(max_size, capacity * _GROWTH)


def _zstd_content_size(data: Buffer) -> int:
    """Return the size of the content by the frame header; 0 if it has none. The header may lie, so this is only a first
    guess."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    is_single_segment = descriptor & 0x20
    size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    position = 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[position : position + size_bytes], "little")
    size = size + 256 if size_bytes == 2 else size
    # A first guess must not be a bomb itself: beyond this ratio, grow step by step instead.
    return size if size <= max(len(data) * 64, _FIRST_GUESS_BYTES) else 0


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, view.nbytes, _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_UINT32_BE.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    """Decompress both forms that are in use: librdkafka writes raw snappy, Java the xerial stream."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, max_size)
    pieces: list[bytes] = []
    total = 0
    position = len(_XERIAL_HEADER)
    while position < view.nbytes:
        if view.nbytes - position < 4:
            raise DecompressionError("a snappy block's size is cut off", message="record batch", position=position)
        (size,) = _UINT32_BE.unpack_from(view, position)
        position += 4
        if size > view.nbytes - position:
            raise DecompressionError(
                f"a snappy block claims {size} bytes, {view.nbytes - position} are left",
                message="record batch",
                position=position,
            )
        pieces.append(_decompress_raw_snappy(view[position : position + size], max_size - total))
        total += len(pieces[-1])
        position += size
    return b"".join(pieces)


def _decompress_raw_snappy(data: memoryview, max_size: int) -> bytes:
    if not data.nbytes:
        raise DecompressionError("no snappy data", message="record batch")
    claimed = cramjam.snappy.decompress_raw_len(data)
    if claimed > max_size:
        raise _TooLarge
    if claimed > data.nbytes * _SNAPPY_MAX_RATIO:
        raise DecompressionError(f"{data.nbytes} bytes of snappy claim to hold {claimed}", message="record batch")
    return bytes(cramjam.snappy.decompress_raw(data))


def _compress_lz4(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_LZ4_HEADER]
    for start in range(0, view.nbytes, _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < plain.nbytes:
            pieces += (_UINT32_LE.pack(len(block)), block)
        else:
            pieces += (_UINT32_LE.pack(plain.nbytes | _LZ4_STORED_FLAG), bytes(plain))
    pieces.append(_LZ4_END)
    return b"".join(pieces)
