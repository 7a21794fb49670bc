"""From what a caller says (`since="-1h"`, `until=...`) to offsets of every partition."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ottla.amounts import TIMES, parse_time_ms
from ottla.errors import ConfigError, InputError
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster

Position: TypeAlias = "str | dt.datetime | Mapping[TopicPartition, int] | None"
"""'earliest', 'latest', a time ('-90m', ISO 8601, datetime with a zone), or offsets by partition."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST, "now": LATEST}


def resolve(
    cluster: Cluster, partitions: Iterable[TopicPartition], position: Position, *, default: int
) -> dict[TopicPartition, int]:
    """Return the offset of `position` in each partition. A time that no record has reached yet is the end.

    Offsets given by partition may be -2 (earliest) and -1 (latest), as in Spark's json; partitions that are not named
    take `default` (EARLIEST or LATEST).
    """
    wanted = list(partitions)
    if isinstance(position, Mapping):
        asked = {p: position.get(p, default) for p in wanted}
        for partition, offset in asked.items():
            if type(offset) is not int or not EARLIEST <= offset < 2**63:
                raise ConfigError(f"{partition}: found {offset!r}, wanted an offset, -2 (earliest) or -1 (latest)")
        found = {p: offset for p, offset in asked.items() if offset >= 0}
        special = {p: offset for p, offset in asked.items() if offset < 0}
        return found | {p: offset for p, (offset, _) in cluster.list_offsets(special).items()}
    timestamp = parse_position(position, default=default)
    offsets = {p: offset for p, (offset, _) in cluster.list_offsets(dict.fromkeys(wanted, timestamp)).items()}
    too_late = [p for p, offset in offsets.items() if offset < 0]
    if too_late:
        offsets |= {p: offset for p, (offset, _) in cluster.list_offsets(dict.fromkeys(too_late, LATEST)).items()}
    return offsets


def parse_position(position: str | dt.datetime | None, *, default: int, now_ms: int | None = None) -> int:
    """Return milliseconds since the epoch, or EARLIEST or LATEST (also for `now`). A time before 1970 becomes 0:
    Kafka's ListOffsets gives negative numbers special meanings. Raises `ConfigError` for an invalid position."""
    if position is None:
        return default
    word = _word(position)
    if word is not None:
        return word
    return max(0, _time_ms(position, _now_ms() if now_ms is None else now_ms))


def parse_position_to_change(position: str | dt.datetime, *, now_ms: int) -> int:
    """Parse a position up to which records are deleted or skipped, as `parse_position` does.

    Raises `InputError` for a time before 1970: it is a slip, or this machine's clock is wrong.
    """
    word = _word(position)
    if word is not None:
        return word
    found = _time_ms(position, now_ms)
    if found < 0:
        clock = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).isoformat(timespec="seconds")
        raise InputError(f"found {str(position)!r}, wanted a time since 1970 (this machine's clock says {clock})")
    return found


def _word(position: str | dt.datetime) -> int | None:
    return _WORDS.get(position.strip()) if isinstance(position, str) else None


def _time_ms(position: str | dt.datetime, now_ms: int) -> int:
    found = parse_time_ms(position, now_ms=now_ms) if isinstance(position, str | dt.datetime) else None
    if found is None:
        raise ConfigError(f"found {position!r}, wanted earliest, latest, {TIMES}")
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
