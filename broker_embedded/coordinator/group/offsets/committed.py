"""A committed offset and its place."""

from __future__ import annotations

from typing import NamedTuple

from ottla_wire.facts import fact

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class OffsetKey(NamedTuple):
    topic: str
    partition: int


@fact
class OffsetAndMetadata:
    """Times are wall clock milliseconds. `expire_timestamp_ms`: set by OffsetCommit 2 to 4, overrides the retention."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
