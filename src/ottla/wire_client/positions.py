"""From what a caller says (`since="-1h"`, `until=...`) to offsets of every partition."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ottla.errors import ConfigError
from ottla.topics import TopicPartition
from ottla.wire_client.cluster import EARLIEST, LATEST, Cluster

Position: TypeAlias = "str | dt.datetime | Mapping[TopicPartition, int] | None"
"""'earliest', 'latest', a time ('-90m', ISO 8601, datetime with a zone), or offsets by partition."""

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def resolve(
    cluster: Cluster, partitions: Iterable[TopicPartition], position: Position, *, default: int
) -> dict[TopicPartition, int]:
    """The offset of `position` in each partition. A time that no record has reached yet is the end.

    Offsets given by partition may be -2 (earliest) and -1 (latest), as in Spark's json; partitions that are not named
    take `default` (EARLIEST or LATEST).
    """
    wanted = list(partitions)
    if isinstance(position, Mapping):
        asked = {p: position.get(p, default) for p in wanted}
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
    """Milliseconds since the epoch, or EARLIEST or LATEST."""
    if position is None:
        return default
    if isinstance(position, dt.datetime):
        return _milliseconds(position)
    text = position.strip()
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    ago = re.fullmatch(r"-(\d+)(ms|s|m|h|d)", text)
    if ago:
        return (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - int(ago[1]) * _UNITS[ago[2]]
    try:
        return _milliseconds(dt.datetime.fromisoformat(text))
    except ValueError:
        raise ConfigError(
            f"found {position!r}, wanted earliest, latest, a time ago (-90s, -15m, -1h, -7d) or ISO 8601"
        ) from None


def _milliseconds(moment: dt.datetime) -> int:
    """A time without a zone is UTC: the same call must mean the same offsets on every machine."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)
