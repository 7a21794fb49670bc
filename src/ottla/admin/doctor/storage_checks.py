"""STO: what fills disks, and what keeps records longer or shorter than expected."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import DAY_MS, HOUR_MS, Evidence, Severity, disks_of, format_bytes, format_duration
from ottla.admin.doctor.origins import merge_inherited
from ottla.admin.facts.cluster_facts import Part, TopicInfo, whole_number

_YEAR_MS = 365 * DAY_MS
_WEEK_MS = 7 * DAY_MS
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")


@Check(
    "STO01",
    Severity.WARNING,
    "A topic may outgrow the disks",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS, Part.LOG_DIRS},
    why="retention.bytes applies to each partition, and every replica needs the same space again. Without it, records"
    " are deleted by age only, however much is written.",
    fix="ottla topics set TOPIC retention.bytes=BYTES",
)
def over_the_disks(seen: Evidence) -> Iterator[CheckResult]:
    disks = sum(total for broker in seen.live for _, total, _ in disks_of(broker))
    if not disks:
        return
    found = []
    for topic in seen.facts.topics:
        if not _deletes(topic):
            continue
        replicas = sum(len(each.replicas) for each in topic.partitions)
        per_partition = topic.number("retention.bytes")
        if per_partition is not None and per_partition >= 0:
            most = per_partition * replicas
            if most > disks * seen.limits.topic_disk_share:
                result = CheckResult(
                    subject=topic.name,
                    message=f"{topic.name} has retention.bytes {format_bytes(per_partition)} per partition: with"
                    f" {replicas} replicas it is {format_bytes(most)}, and all disks have {format_bytes(disks)}",
                    fix=f"ottla topics set {topic.name} retention.bytes="
                    f"{int(disks * seen.limits.topic_disk_share / 2 / max(1, replicas))}",
                )
                found.append((topic, result))
            continue
        most_by_time = _bytes_by_time(seen, topic)
        if most_by_time is not None and most_by_time > disks * seen.limits.topic_disk_share:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has no retention.bytes, and grows to {format_bytes(most_by_time)} at the rate it"
                " is"
                f" written now; all disks have {format_bytes(disks)}",
            )
    yield from merge_inherited(found, "retention.bytes", "BYTES")


def _bytes_by_time(seen: Evidence, topic: TopicInfo) -> float | None:
    """Return the size of the topic when retention by time begins to delete records; infinite if it never does."""
    if seen.rates is None:
        return None
    rate = sum(
        seen.rates.bytes_in.get(place, 0.0) * len(each.replicas)
        for place, each in seen.facts.by_partition.items()
        if place.topic == topic.name
    )
    retention_ms = topic.number("retention.ms")
    if rate <= 0 or retention_ms is None:
        return None
    return rate * (100 * _YEAR_MS if retention_ms < 0 else retention_ms) / 1000


@Check(
    "STO02",
    Severity.WARNING,
    "A disk is full, or soon will be",
    reads={Part.LOG_DIRS},
    why="A broker whose disk is full takes the log directory offline, with all its replicas at once. With two samples"
    " the doctor forecasts when the disk is full.",
    fix="shorten the retention of its largest topics, or move replicas to another broker",
)
def full_disks(seen: Evidence) -> Iterator[CheckResult]:
    for broker in seen.live:
        for path, total, usable in disks_of(broker):
            used = 1 - usable / total
            left_ms = _time_left_ms(seen, broker.id, path, usable)
            share = f"broker {broker.id} has used {used:.0%} of the disk of {path}"
            if left_ms is not None and left_ms < _WEEK_MS:
                yield CheckResult(
                    subject=f"broker {broker.id}: {path}",
                    severity=Severity.ERROR if left_ms < DAY_MS else Severity.WARNING,
                    message=f"{share}, and it is full in {format_duration(left_ms)} at the rate it fills now",
                )
            elif used > seen.limits.disk_share:
                yield CheckResult(subject=f"broker {broker.id}: {path}", message=share)


def _time_left_ms(seen: Evidence, broker: int, path: str, usable: int) -> float | None:
    if seen.before is None:
        return None
    before = next((each for each in seen.before.brokers if each.id == broker), None)
    then = next((left for old, _, left in disks_of(before) if old == path), None) if before is not None else None
    elapsed_ms = seen.facts.at_ms - seen.before.at_ms
    if then is None or then <= usable or elapsed_ms < seen.limits.forecast_ms:
        return None
    return usable / ((then - usable) / elapsed_ms)


@Check(
    "STO03",
    Severity.WARNING,
    "A record is dated in the future",
    reads={Part.NEWEST_TIMESTAMPS},
    why="Retention compares the newest timestamp of a segment. One record dated a year ahead keeps its segment, and"
    " all later ones, for that year.",
    fix="ottla topics delete-records TOPIC --before PARTITION:OFFSET, and message.timestamp.after.max.ms=3600000",
)
def future_records(seen: Evidence) -> Iterator[CheckResult]:
    for place, each in seen.facts.by_partition.items():
        newest = each.newest_timestamp_ms
        if newest is not None and newest > seen.facts.at_ms + seen.limits.future_ms:
            behind = (each.newest_timestamp_offset or 0) + 1
            yield CheckResult(
                subject=str(place),
                message=f"{place}: offset {each.newest_timestamp_offset} is dated {_date(newest)}: its segment is"
                " kept until then, plus the retention time",
                fix=f"ottla topics delete-records {place.topic} --before {place.partition}:{behind}",
            )


@Check(
    "STO04",
    Severity.NOTE,
    "Any timestamp is accepted",
    reads={Part.TOPIC_SETTINGS, Part.BROKER_SETTINGS},
    why="Kafka's timestamps are milliseconds. A client that writes nanoseconds dates its records millions of years"
    " ahead. Before Kafka 4.0 there was no limit by default; since then the default is one hour.",
    fix="ottla cluster set all log.message.timestamp.after.max.ms=3600000",
)
def any_timestamp(seen: Evidence) -> Iterator[CheckResult]:
    open_brokers = [
        broker
        for broker, setting in seen.broker_setting("log.message.timestamp.after.max.ms").items()
        if (whole_number(setting) or 0) > _YEAR_MS
    ]
    if open_brokers:
        yield CheckResult(
            subject="brokers",
            message=f"{len(open_brokers)} brokers accept records dated more than a year ahead"
            " (log.message.timestamp.after.max.ms)",
        )
    for topic in seen.facts.topics:
        setting = topic.settings.get("message.timestamp.after.max.ms")
        is_own = setting is not None and setting.source == "DYNAMIC_TOPIC_CONFIG"
        if is_own and (whole_number(setting) or 0) > _YEAR_MS:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} accepts records dated more than a year ahead (message.timestamp.after.max.ms)",
                fix=f"ottla topics set {topic.name} message.timestamp.after.max.ms={HOUR_MS}",
            )


@Check(
    "STO05",
    Severity.WARNING,
    "Segments are larger than retention",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="Retention deletes whole segments, but never the active one. In a topic with few writes the active segment"
    " stays open for segment.ms, so records are kept for retention plus segment.ms.",
    fix="ottla topics set TOPIC segment.ms=MILLISECONDS",
)
def large_segments(seen: Evidence) -> Iterator[CheckResult]:
    by_time, by_size = [], []
    for topic in seen.facts.topics:
        if not _deletes(topic) or topic.is_internal:
            continue
        retention_ms, segment_ms = topic.number("retention.ms"), topic.number("segment.ms")
        if retention_ms is not None and segment_ms is not None and 0 <= retention_ms < segment_ms:
            result = CheckResult(
                subject=topic.name,
                message=f"{topic.name} keeps records for {format_duration(retention_ms)} and a segment open for"
                f" {format_duration(segment_ms)}: data lives up to {format_duration(retention_ms + segment_ms)}",
                fix=f"ottla topics set {topic.name} segment.ms={max(retention_ms // 4, 60_000)}",
            )
            by_time.append((topic, result))
        kept, segment = topic.number("retention.bytes"), topic.number("segment.bytes")
        if kept is not None and segment is not None and 0 <= kept < segment:
            result = CheckResult(
                subject=topic.name,
                message=f"{topic.name} keeps {format_bytes(kept)} and has segments of {format_bytes(segment)}: each"
                " partition"
                f" has up to {format_bytes(kept + segment)}",
                fix=f"ottla topics set {topic.name} segment.bytes={max(kept // 4, 1 << 20)}",
            )
            by_size.append((topic, result))
    yield from merge_inherited(by_time, "segment.ms", "MILLISECONDS", "retention.ms")
    yield from merge_inherited(by_size, "segment.bytes", "BYTES", "retention.bytes")


@Check(
    "STO06",
    Severity.WARNING,
    "Logs are in a temporary directory",
    reads={Part.BROKER_SETTINGS},
    why="Kafka's sample configuration puts log.dirs below /tmp. A reboot, or a cleanup job, deletes it.",
    fix="log.dirs in server.properties: a directory on a disk of its own",
)
def temporary_dirs(seen: Evidence) -> Iterator[CheckResult]:
    for broker in seen.live:
        setting = broker.settings.get("log.dirs") or broker.settings.get("log.dir")
        for path in (setting.value or "" if setting is not None else "").split(","):
            if any(path.strip() == place or path.strip().startswith(f"{place}/") for place in _TEMPORARY):
                yield CheckResult(
                    subject=f"broker {broker.id}: {path.strip()}",
                    message=f"broker {broker.id} keeps its logs in {path.strip()}: the next reboot may empty it",
                )


def _deletes(topic: TopicInfo) -> bool:
    policy = topic.settings.get("cleanup.policy")
    return policy is not None and "delete" in (policy.value or "")


def _date(milliseconds: int) -> str:
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds:,} ms after 1970"
