"""The key hashes that Kafka clients agree on, bit for bit. Each is a 32-bit number."""

from __future__ import annotations

import struct
import zlib
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """Austin Appleby's MurmurHash2 with the seed of Kafka's Java client, unsigned."""
    length = len(key)
    words = length >> 2
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", key[: words << 2]):
        k = (k * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) ^ (k * _M)) & _MASK
    tail = key[words << 2 :]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def positive_murmur2(key: bytes) -> int:
    """murmur2 with the sign bit cleared, as Java's partitioner takes it modulo the number of partitions."""
    return murmur2(key) & 0x7FFFFFFF


def crc32(key: bytes) -> int:
    """CRC-32 as librdkafka's `consistent` partitioners use it (the polynomial of zlib)."""
    return zlib.crc32(key)


def fnv1a(key: bytes) -> int:
    """FNV-1a, then the absolute value of the signed 32-bit result: Sarama's default, and librdkafka's."""
    h = 0x811C9DC5
    for byte in key:
        h = ((h ^ byte) * 0x01000193) & _MASK
    return h if h < 0x80000000 else (1 << 32) - h
