"""STO, continued: settings of topics that keep everything, compact nothing, or cost more than expected."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Evidence,
    Severity,
    format_bytes,
    format_duration,
    is_own,
    some,
)
from ottla.admin.doctor.origins import merge_inherited
from ottla.admin.facts.cluster_facts import Part, TopicInfo
from ottla.admin.facts.facts_reader import is_dead_letter_name
from ottla.schedule.headers import TOPIC_PREFIX

_YEAR_MS = 365 * DAY_MS
_DIRTY = 0.99
_TOMBSTONE_MS = 10 * MINUTE_MS
_SEGMENT_MS = 10 * MINUTE_MS
_SEGMENT_BYTES = 1 << 20
_FLUSH_MESSAGES = 1_000
_FLUSH_MS = 1_000


@Check(
    "STO07",
    Severity.WARNING,
    "A topic keeps everything for ever",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="With retention.ms and retention.bytes of -1 nothing is ever deleted: the topic grows until the disks are full."
    " Where that is meant, accept it with a reason (--accept).",
    fix="ottla topics set TOPIC retention.ms=MILLISECONDS",
)
def unlimited(seen: Evidence) -> Iterator[CheckResult]:
    inherited = []
    for topic in _of_users(seen):
        if not _has_policy(topic, "delete") or _has_policy(topic, "compact") or is_dead_letter_name(topic.name):
            continue
        if topic.number("retention.ms") == topic.number("retention.bytes") == -1:
            if not is_own(topic, "retention.ms"):
                inherited.append(topic.name)
                continue
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has no limit of time and none of bytes: nothing is ever deleted",
                fix=f"ottla topics set {topic.name} retention.ms=MILLISECONDS",
            )
    if inherited:
        yield CheckResult(
            subject="retention.ms",
            message=f"{len(inherited)} topics ({some(inherited)}) have the brokers' retention, which has no limit:"
            " nothing is ever deleted",
            fix="ottla cluster set all log.retention.ms=MILLISECONDS",
        )


@Check(
    "STO08",
    Severity.WARNING,
    "A topic is compacted in name only",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS, Part.BROKER_SETTINGS, Part.LOG_DIRS},
    why="Kafka compacts closed segments, once min.cleanable.dirty.ratio of the log is not compacted and its records are"
    " older than min.compaction.lag.ms. Where one of them is out of reach, every version of every key is kept.",
    fix="ottla topics unset TOPIC SETTING",
)
def never_compacted(seen: Evidence) -> Iterator[CheckResult]:
    compacted = [topic for topic in _of_users(seen) if _has_policy(topic, "compact")]
    off = [broker for broker, each in seen.broker_setting("log.cleaner.enable").items() if each.value == "false"]
    if off and compacted:
        yield CheckResult(
            subject="brokers",
            message=f"log.cleaner.enable is false on brokers {some(off)}: {len(compacted)} topics"
            f" ({some([topic.name for topic in compacted])}) are not compacted there",
            fix="log.cleaner.enable=true in server.properties of every broker",
        )
    found: dict[str, list[tuple[TopicInfo, CheckResult]]] = {}
    for topic in compacted:
        why = _out_of_reach(seen, topic)
        if why is not None:
            setting, reason = why
            result = CheckResult(
                subject=topic.name,
                message=f"{topic.name} is never compacted: {reason}",
                fix=f"ottla topics unset {topic.name} {setting}"
                if is_own(topic, setting)
                else f"ottla topics set {topic.name} {setting}=VALUE",
            )
            found.setdefault(setting, []).append((topic, result))
    for setting, of_it in found.items():
        yield from merge_inherited(of_it, setting, "VALUE")


def _out_of_reach(seen: Evidence, topic: TopicInfo) -> tuple[str, str] | None:
    """Return the setting that keeps the cleaner away, and how."""
    least_lag = topic.number("min.compaction.lag.ms")
    if least_lag is not None and least_lag > _YEAR_MS:
        return "min.compaction.lag.ms", f"min.compaction.lag.ms is {format_duration(least_lag)}"
    most_lag = topic.number("max.compaction.lag.ms")
    if most_lag is not None and 0 <= most_lag < _YEAR_MS:  # it closes segments, and counts whatever is dirty
        return None
    ratio = _ratio(topic)
    if ratio is not None and ratio >= _DIRTY:
        return "min.cleanable.dirty.ratio", f"min.cleanable.dirty.ratio is {ratio:g}, and no log is that dirty for long"
    open_ms, segment = topic.number("segment.ms"), topic.number("segment.bytes")
    if open_ms is not None and open_ms > _YEAR_MS and segment is not None:
        sizes = [size for place, size in seen.facts.partition_bytes.items() if place.topic == topic.name]
        if sizes and max(sizes) < segment:
            return (
                "segment.ms",
                f"all its records are in open segments (segment.ms {format_duration(open_ms)},"
                f" segment.bytes {format_bytes(segment)}, at most {format_bytes(max(sizes))} in a partition)",
            )
    return None


def _ratio(topic: TopicInfo) -> float | None:
    found = topic.settings.get("min.cleanable.dirty.ratio")
    try:
        return float(found.value or "") if found is not None and len(found.value or "") <= 30 else None
    except ValueError:
        return None


@Check(
    "STO09",
    Severity.WARNING,
    "Tombstones of a compacted topic vanish at once",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="A tombstone (a record without a value) deletes its key. Compaction removes tombstones that are older than"
    " delete.retention.ms. A reader that has not come so far by then keeps the deleted keys for ever.",
    fix="ottla topics set TOPIC delete.retention.ms=86400000",
)
def hasty_tombstones(seen: Evidence) -> Iterator[CheckResult]:
    found = []
    for topic in _of_users(seen):
        kept = topic.number("delete.retention.ms")
        if _has_policy(topic, "compact") and kept is not None and 0 <= kept < _TOMBSTONE_MS:
            result = CheckResult(
                subject=topic.name,
                message=f"{topic.name} keeps tombstones for {format_duration(kept)} (delete.retention.ms): a reader"
                " that is slower keeps deleted keys",
                fix=f"ottla topics set {topic.name} delete.retention.ms={DAY_MS}",
            )
            found.append((topic, result))
    yield from merge_inherited(found, "delete.retention.ms", str(DAY_MS))


@Check(
    "STO10",
    Severity.WARNING,
    "Segments are very small",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="Every segment of every replica costs three open files and memory, and every roll costs writes. A broker with"
    " very many of them reaches its limit of open files or memory maps, and stops.",
    fix="ottla topics unset TOPIC segment.ms",
)
def tiny_segments(seen: Evidence) -> Iterator[CheckResult]:
    by_time, by_size = [], []
    for topic in _of_users(seen):
        open_ms, size = topic.number("segment.ms"), topic.number("segment.bytes")
        if open_ms is not None and 0 < open_ms < _SEGMENT_MS:
            kept = topic.number("retention.ms")
            many = f": up to {kept // open_ms:,} segments in a partition" if kept is not None and kept > open_ms else ""
            result = CheckResult(
                subject=f"{topic.name} segment.ms",
                message=f"{topic.name} begins a segment every {format_duration(open_ms)} (segment.ms){many}",
                fix=f"ottla topics set {topic.name} segment.ms={max(HOUR_MS, (kept or 0) // 20)}",
            )
            by_time.append((topic, result))
        if size is not None and 0 < size < _SEGMENT_BYTES:
            result = CheckResult(
                subject=f"{topic.name} segment.bytes",
                message=f"{topic.name} has segments of {format_bytes(size)} (segment.bytes)",
                fix=f"ottla topics unset {topic.name} segment.bytes",
            )
            by_size.append((topic, result))
    yield from merge_inherited(by_time, "segment.ms", "MILLISECONDS")
    yield from merge_inherited(by_size, "segment.bytes", "BYTES")


@Check(
    "STO11",
    Severity.WARNING,
    "Every write waits for the disk",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="flush.messages and flush.ms make the broker call fsync. Kafka keeps records by replication, and with a small"
    " number a partition takes some hundred batches a second.",
    fix="ottla topics unset TOPIC flush.messages",
)
def flushed(seen: Evidence) -> Iterator[CheckResult]:
    for setting, broker_setting, least in (
        ("flush.messages", "log.flush.interval.messages", _FLUSH_MESSAGES),
        ("flush.ms", "log.flush.interval.ms", _FLUSH_MS),
    ):
        inherited = []
        for topic in seen.facts.topics:
            value = topic.number(setting)
            if value is None or not 0 < value < least:
                continue
            if is_own(topic, setting):
                yield CheckResult(
                    subject=f"{topic.name} {setting}",
                    message=f"{topic.name} has {setting}={value}: its partitions call fsync that often",
                    fix=f"ottla topics unset {topic.name} {setting}",
                )
            else:
                inherited.append(topic.name)
        if inherited:
            yield CheckResult(
                subject=broker_setting,
                message=f"{len(inherited)} topics ({some(inherited)}) have the brokers' {broker_setting} below"
                f" {least:,}: their partitions call fsync that often",
                fix=f"ottla cluster unset all {broker_setting}, or remove it from server.properties of every broker",
            )


@Check(
    "STO12",
    Severity.NOTE,
    "Brokers compress what producers sent",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="With another compression.type than producer, the broker decompresses and compresses every batch that its"
    " producer has compressed otherwise. That is processor time of brokers, which producers have more of.",
    fix="ottla topics unset TOPIC compression.type, and compression.type in the producers",
)
def compressed_again(seen: Evidence) -> Iterator[CheckResult]:
    inherited: dict[str, list[str]] = {}
    for topic in _of_users(seen):
        found = topic.settings.get("compression.type")
        if found is None or found.value in (None, "", "producer"):
            continue
        if is_own(topic, "compression.type"):
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has compression.type={found.value}: brokers compress what producers sent"
                " otherwise",
                fix=f"ottla topics unset {topic.name} compression.type, and compression.type in the producers",
            )
        else:
            inherited.setdefault(str(found.value), []).append(topic.name)
    for kind, names in inherited.items():
        yield CheckResult(
            subject="compression.type",
            message=f"{len(names)} topics ({some(names)}) have the brokers' compression.type={kind}: brokers compress"
            " what producers sent otherwise",
            fix="ottla cluster set all compression.type=producer, and compression.type in the producers",
        )


def _of_users(seen: Evidence) -> Iterator[TopicInfo]:
    """Yield topics that are neither Kafka's own nor a schedule's, which keeps what it must."""
    for topic in seen.facts.topics:
        if not topic.is_internal and not topic.name.startswith(TOPIC_PREFIX):
            yield topic


def _has_policy(topic: TopicInfo, policy: str) -> bool:
    found = topic.settings.get("cleanup.policy")
    return found is not None and policy in (found.value or "").split(",")
