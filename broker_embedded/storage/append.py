"""Input and output of an append, shared by several storage modules."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class AppendOrigin(Enum):
    """The writer of the batches. Only clients are held to base offset 0, one batch per append and no control
    records.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"


class AppendInfo(NamedTuple):
    """Result of an append. For a duplicate these are the offsets of the first append of the same batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless message.timestamp.type is LogAppendTime (what ProduceResponse carries)."""
    log_start_offset: int
    is_duplicate: bool


class TimestampOffset(NamedTuple):
    """A record found by time. `leader_epoch` is -1 when unknown."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
