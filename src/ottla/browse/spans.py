"""Which offsets `--from`, `--until` and `-p` mean. Pure, but for `resolved`, which asks a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.errors import ConfigError, InputError
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.position_lookup import parse_position, parse_position_to_change

_PLACES: Final = re.compile(r"[0-9]{1,9}:[0-9]{1,19}(,[0-9]{1,9}:[0-9]{1,19})*")
_LAST: Final = re.compile(r"-([0-9]{1,12})")
_NUMBERS: Final = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")
_MOST_OFFSET: Final = 2**63 - 1
FOR_EVER: Final = _MOST_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanBoundary:
    """A position in every partition: one of these. `offsets` names its partitions, and means those only."""

    timestamp: int | None = None
    """Milliseconds, or EARLIEST or LATEST, as ListOffsets takes them."""
    last: int | None = None
    """So many offsets before the end."""
    offsets: Mapping[int, int] = field(default_factory=dict)


def parse_place(text: str, *, option: str, now_ms: int, is_change: bool = False) -> SpanBoundary:
    """Parse `earliest`, `latest`, `now`, `-10` (the last ten of each partition), a time, or `P:O[,P:O...]`.

    With `is_change` something is deleted up to there, and a time before 1970 is refused.
    """
    stripped = text.strip()
    if _PLACES.fullmatch(stripped):
        pairs = [pair.split(":") for pair in stripped.split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if len(offsets) < len(pairs):
            raise InputError(f"{option}: found a partition twice in {text!r}, wanted each once")
        if max(offsets.values()) > _MOST_OFFSET:
            raise InputError(f"{option}: found {max(offsets.values())}, wanted an offset below 2 to the 63")
        return SpanBoundary(offsets=offsets)
    last = _LAST.fullmatch(stripped)
    if last:
        return SpanBoundary(last=int(last[1]))
    try:
        return SpanBoundary(
            timestamp=parse_position_to_change(stripped, now_ms=now_ms)
            if is_change
            else parse_position(stripped, default=EARLIEST, now_ms=now_ms)
        )
    except ConfigError:
        raise InputError(
            f"{option}: found {text!r}, wanted earliest, latest, -N (the last N of each partition), a time ago (-15m,"
            " -2h), a time as 2026-11-22T10:00 (UTC), or PARTITION:OFFSET[,...]"
        ) from None


def parse_partitions(text: str) -> frozenset[int]:
    """Parse `0,2,5-7`."""
    if not _NUMBERS.fullmatch(text):
        raise InputError(f"--partitions: found {text!r}, wanted numbers and ranges, as in 0,2,5-7")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        end = int(last or first)
        if end - int(first) > 100_000:
            raise InputError(f"--partitions: found {part}, wanted at most 100,000 partitions")
        found.update(range(int(first), end + 1))
    return frozenset(found)


def resolved(
    cluster: Cluster,
    topic: str,
    *,
    start: SpanBoundary,
    until: SpanBoundary | None,
    only: Collection[int] | None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset wanted and the first one not wanted, of each partition. `until` None: without end.

    Raises `UnknownTopic`, and `InputError` for a partition that the topic does not have.
    """
    there = sorted(cluster.topic(topic).leaders)
    named = set(start.offsets) | set(until.offsets if until else ()) | set(only or ())
    for number in sorted(named.difference(there)):
        raise InputError(f"{topic}: found partition {number}, wanted one of its {len(there)}: 0 to {len(there) - 1}")
    chosen: list[TopicPartition] = [
        TopicPartition(topic, number)
        for number in there
        if (only is None or number in only)
        and (not start.offsets or number in start.offsets)
        and (until is None or not until.offsets or number in until.offsets)
    ]
    ends = {place: offset for place, (offset, _) in cluster.list_offsets(dict.fromkeys(chosen, LATEST)).items()}
    starts = _offsets(cluster, chosen, start, ends)
    if until is None:
        return {place: (starts[place], FOR_EVER) for place in chosen}
    stops = _offsets(cluster, chosen, until, ends)
    earliest = {place: offset for place, (offset, _) in cluster.list_offsets(dict.fromkeys(chosen, EARLIEST)).items()}
    for place, offset in starts.items():
        if start.offsets and not earliest[place] <= offset <= ends[place]:
            say(f"{place}: offset {offset} is not there; the partition holds {earliest[place]} to {ends[place] - 1}")
    return {
        place: (max(starts[place], earliest[place]), min(stops[place], ends[place]))
        for place in chosen
        if max(starts[place], earliest[place]) < min(stops[place], ends[place])
    }


def _offsets(
    cluster: Cluster, chosen: Collection[TopicPartition], place: SpanBoundary, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if place.offsets:
        return {each: place.offsets[each.partition] for each in chosen}
    if place.last is not None:
        return {each: max(0, ends[each] - place.last) for each in chosen}
    if place.timestamp == LATEST:
        return dict(ends)
    timestamp = EARLIEST if place.timestamp is None else place.timestamp
    found = cluster.list_offsets(dict.fromkeys(chosen, timestamp))
    return {each: ends[each] if offset < 0 else offset for each, (offset, _) in found.items()}
