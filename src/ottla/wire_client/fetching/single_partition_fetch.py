"""The request that a broker gets again and again while records of one partition trickle in: read it on from there.

It is an incremental request (KIP-227) of version 13 that names one partition and forgets none. Written down at once,
because it is on the way of each record: what `fetch_session` says in general takes twice as long to make and to encode,
for the same bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla_wire.protocol.primitives import encode_uvarint

_FIELDS: Final = Struct(">iiiibiiB16sBiiqiqiBBB")
_NONE: Final = -1
_ONE_ENTRY: Final = 2  # a compact array's length goes by one more than it is
_NO_ENTRIES: Final = 1
_NO_TAGS: Final = 0


def encode_single_partition_fetch(
    *,
    max_wait_ms: int,
    max_bytes: int,
    isolation_level: int,
    session_id: int,
    session_epoch: int,
    topic_id: bytes,
    partition: int,
    fetch_offset: int,
    partition_max_bytes: int,
    rack: bytes,
) -> bytes:
    """Return the body of the request. `rack`: as `rack_at_the_end` gives it."""
    fields = _FIELDS.pack(
        _NONE,  # the replica that asks: a client is none
        max_wait_ms,
        1,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        _ONE_ENTRY,
        topic_id,
        _ONE_ENTRY,
        partition,
        _NONE,  # epoch of the leader
        fetch_offset,
        _NONE,  # epoch of the last record
        _NONE,  # start of the log
        partition_max_bytes,
        _NO_TAGS,
        _NO_TAGS,
        _NO_ENTRIES,  # forgotten
    )
    return fields + rack


def rack_at_the_end(rack: str) -> bytes:
    """Return the last field of the request, with the tags that it has not."""
    name = rack.encode()
    return encode_uvarint(len(name) + 1) + name + b"\0"
