"""Which partition of an internal topic a group (or a transactional id) belongs to: Java's `String.hashCode`, as Kafka
does.

Clients cannot see the mapping, but tools that read `__consumer_offsets`, and a folder that Kafka wrote, rely on it.
"""

from __future__ import annotations

_SIGN_BIT = 0x8000_0000


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode` as an unsigned 32-bit number: over UTF-16 units, so that an emoji counts as
    two."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8) + units[position + 1]) & 0xFFFFFFFF
    return value


def partition_for(key: str, partition_count: int) -> int:
    """Return `Utils.abs(hashCode) % n`; the one number without a positive counterpart counts as 0."""
    value = java_string_hash(key)
    if value >= _SIGN_BIT:
        value = (_SIGN_BIT << 1) - value
    return (0 if value == _SIGN_BIT else value) % partition_count
