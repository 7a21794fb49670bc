"""Reads the topics of a consumer's subscription, the only part of member metadata that a coordinator needs.

The coordinator treats member metadata as opaque, with one exception: to know whether offsets of a topic are still in
use it reads the topic list of the consumer protocol's subscription, whose version 0 prefixes every later version.
"""

from __future__ import annotations

import struct

PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription, or None for other metadata."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)  # after the version, an int16
        if count < 0:
            return None
        position = 6
        topics = []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            position += 2
            name = metadata[position : position + length]
            if length < 0 or len(name) != length:
                return None
            topics.append(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
