"""GRP: groups that lag, lose records, or leave members idle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import MINUTE_MS, Evidence, Severity, format_duration
from ottla.admin.facts.cluster_facts import ClusterFacts, GroupInfo, Part, whole_number
from ottla.admin.facts.facts_reader import DAY_MS, HOUR_MS, expiry_horizon_ms
from ottla.admin.facts.lag import lag_of
from ottla.topics import TopicPartition

_FEW = 3
"""Partitions that are named one by one."""
_EAGER = frozenset({"range", "roundrobin", "sticky"})


@Check(
    "GRP01",
    Severity.WARNING,
    "A group falls behind, or makes no progress",
    reads={Part.OFFSETS, Part.GROUP_OFFSETS},
    samples=2,
    why="Growing lag does not shrink by itself while the write rate stays the same. If only one partition makes no"
    " progress, its consumer usually fails at one record.",
    fix="more consumers, or ottla consume TOPIC --from PARTITION:OFFSET -n 1 to see the record",
)
def falls_behind(seen: Evidence) -> Iterator[CheckResult]:
    before = seen.before
    if before is None:
        return
    earlier = {group.group_id: group for group in before.groups}
    for group in seen.facts.groups:
        if group.group_id not in earlier or group.offsets is None or earlier[group.group_id].offsets is None:
            continue
        now, then = lag_of(group, seen.facts), lag_of(earlier[group.group_id], before)
        if then.total is not None and now.at_least > then.total + seen.limits.lag_growth:
            behind = f"{'at least ' if now.total is None else ''}{now.at_least:,}"
            yield CheckResult(
                subject=f"group {group.group_id}",
                message=f"group {group.group_id} was {then.total:,} records behind and is {behind} behind now",
            )
        yield from _stands_still(group, earlier[group.group_id], seen.facts, before)


def _stands_still(group: GroupInfo, earlier: GroupInfo, now: ClusterFacts, then: ClusterFacts) -> Iterator[CheckResult]:
    old = earlier.committed
    moved = [place for place, offset in group.committed.items() if offset > old.get(place, offset)]
    if not moved:
        return
    for place, offset in group.committed.items():
        fact, before = now.by_partition.get(place), then.by_partition.get(place)
        if fact is None or before is None or fact.high_watermark is None or before.high_watermark is None:
            continue
        if offset == old.get(place) and offset < before.high_watermark:
            yield CheckResult(
                subject=f"group {group.group_id}: {place}",
                message=f"group {group.group_id} makes no progress at {place} offset {offset},"
                " while its other partitions do",
                fix=f"ottla consume {place.topic} --from {place.partition}:{offset} -n 1",
            )


@Check(
    "GRP02",
    Severity.WARNING,
    "Members of a group have nothing to do",
    reads={Part.GROUP_MEMBERS},
    why="Each partition is assigned to one member of a group. Members beyond the number of partitions are idle, and"
    " use the same resources as the others.",
    fix="fewer processes, or ottla topics add-partitions TOPIC N",
)
def idle_members(seen: Evidence) -> Iterator[CheckResult]:
    for group in seen.facts.groups:
        if group.type == "Share" or group.state != "Stable" or not group.members:
            continue
        idle = [member for member in group.members if not member.partitions]
        assigned = sum(len(member.partitions) for member in group.members)
        if idle and assigned:
            yield CheckResult(
                subject=f"group {group.group_id}",
                message=f"group {group.group_id} has {len(group.members)} members on {assigned} partitions:"
                f" {len(idle)} idle",
                fix=_enough_partitions(group),
            )


def _enough_partitions(group: GroupInfo) -> str:
    """Return the fix for members without partitions. It names the topic if the group reads a single one."""
    members = group.members or ()
    topics = {place.topic for member in members for place in member.partitions}
    if len(topics) != 1:
        return "fewer processes, or more partitions in one of its topics (ottla topics add-partitions)"
    return f"ottla topics add-partitions {topics.pop()} {len(members)}; or fewer processes"


@Check(
    "GRP03",
    Severity.WARNING,
    "The offsets of an empty group will expire",
    reads={Part.GROUPS, Part.GROUP_OFFSETS, Part.COMMIT_TIMES, Part.BROKER_SETTINGS},
    why="Kafka deletes the offsets of an empty group after offsets.retention.minutes (KIP-211). When the group starts"
    " again, auto.offset.reset decides: it reads all records again, or skips those written meanwhile.",
    fix="start a member of the group; ottla groups copy GROUP OTHER commits its offsets under another name",
)
def offsets_expire(seen: Evidence) -> Iterator[CheckResult]:
    minutes = [
        found
        for each in seen.broker_setting("offsets.retention.minutes").values()
        if (found := whole_number(each)) is not None
    ]
    if not minutes:
        return
    for group in seen.facts.groups:
        times = [each.kept_since_ms for each in group.offsets or () if each.kept_since_ms is not None]
        left = [at_ms + min(minutes) * MINUTE_MS - seen.facts.at_ms for at_ms in times]
        expiring = [each for each in left if each < DAY_MS]
        if group.state == "Empty" and expiring:
            yield CheckResult(
                subject=f"group {group.group_id}",
                message=f"group {group.group_id} is empty, and its offsets of {len(expiring)} partitions expire within"
                f" {format_duration(max(0, min(expiring)))}: then auto.offset.reset decides",
                fix=f"start a member of it; ottla groups copy {group.group_id} {group.group_id}-kept commits its"
                " offsets under another name",
            )


@Check(
    "GRP04",
    Severity.ERROR,
    "A group loses records that it has not read",
    reads={Part.OFFSETS, Part.GROUP_OFFSETS, Part.EXPIRY, Part.TOPIC_SETTINGS},
    why="Retention deletes records whether or not they were read. A group whose offset is out of range continues where"
    " auto.offset.reset says.",
    fix="ottla topics set TOPIC retention.ms=MILLISECONDS until the group has caught up",
)
def loses_records(seen: Evidence) -> Iterator[CheckResult]:
    for group in seen.facts.groups:
        found: dict[tuple[str, str, int], list[tuple[TopicPartition, int]]] = {}
        for place, offset in group.committed.items():
            fact = seen.facts.by_partition.get(place)
            if fact is None or fact.log_start is None:
                continue
            if offset < fact.log_start:
                found.setdefault((place.topic, "missed", 0), []).append((place, fact.log_start - offset))
                continue
            for limit, horizon_ms in ((fact.expires_within_hour, HOUR_MS), (fact.expires_within_day, DAY_MS)):
                if limit is not None and offset < limit:
                    found.setdefault((place.topic, "loses", horizon_ms), []).append((place, limit - offset))
                    break
        for (topic, kind, horizon_ms), lost in found.items():
            for subject, what, records in _by_partition(topic, lost):
                name = f"group {group.group_id}"
                if kind == "missed":
                    yield CheckResult(
                        subject=f"{name}: {subject}",
                        message=f"{name} missed {records:,} records of {what}: they were deleted before it read them",
                        fix="the records cannot be restored; find out why the group was not running",
                    )
                    continue
                retention_ms = seen.facts.by_topic[topic].number("retention.ms") or horizon_ms
                within = format_duration(expiry_horizon_ms(retention_ms, horizon_ms))
                yield CheckResult(
                    subject=f"{name}: {subject}",
                    severity=Severity.ERROR if horizon_ms == HOUR_MS else Severity.WARNING,
                    message=f"{name} loses {records:,} unread records of {what} within {within}",
                    fix=f"ottla topics set {topic} retention.ms={retention_ms * 2}",
                )


def _by_partition(topic: str, lost: list[tuple[TopicPartition, int]]) -> Iterator[tuple[str, str, int]]:
    """Yield (subject, what it is about, records): a few partitions one by one, many as their topic."""
    if len(lost) <= _FEW:
        yield from ((str(place), str(place), records) for place, records in lost)
    else:
        yield topic, f"{len(lost)} partitions of {topic}", sum(records for _, records in lost)


@Check(
    "GRP05",
    Severity.WARNING,
    "A group rebalances repeatedly",
    reads={Part.GROUPS},
    samples=4,
    why="Every rebalance of a classic group stops its members. A group that changes its state in every sample does"
    " little else: a member exceeds max.poll.interval.ms, or restarts in a loop.",
    fix="the logs of its members; max.poll.interval.ms above the slowest batch",
)
def restless(seen: Evidence) -> Iterator[CheckResult]:
    history = [{group.group_id: group.state for group in facts.groups} for facts in (*seen.earlier, seen.facts)]
    for group in seen.facts.groups:
        states = [each[group.group_id] for each in history if group.group_id in each]
        changes = sum(before != after for before, after in pairwise(states))
        if changes >= seen.limits.state_changes:
            yield CheckResult(
                subject=f"group {group.group_id}",
                message=f"group {group.group_id} changed its state {changes} times in {len(states)} samples"
                f" ({', '.join(states)})",
            )


@Check(
    "GRP06",
    Severity.NOTE,
    "Every deploy stops the whole group",
    reads={Part.GROUP_MEMBERS},
    why="With an eager assignor, all members revoke all partitions when one joins or leaves. In a large group, every"
    " deploy stops all members once for each process.",
    fix="partition.assignment.strategy=cooperative-sticky, or group.protocol=consumer (KIP-848)",
)
def eager(seen: Evidence) -> Iterator[CheckResult]:
    for group in seen.facts.groups:
        if (
            group.type == "Classic"
            and group.assignor in _EAGER
            and len(group.members or ()) > seen.limits.eager_members
        ):
            yield CheckResult(
                subject=f"group {group.group_id}",
                message=f"group {group.group_id} has {len(group.members or ())} members and the eager assignor"
                f" {group.assignor!r}: every deploy stops all members",
            )


@Check(
    "GRP07",
    Severity.ERROR,
    "A committed offset is beyond the end of the log",
    reads={Part.OFFSETS, Part.GROUPS, Part.GROUP_OFFSETS},
    why="The topic was deleted and created again, or the log was truncated. The next member that starts there begins"
    " where auto.offset.reset says: it reads all records again, or skips those that are there.",
    fix="ottla groups reset GROUP --to WHERE --topic TOPIC, while the group is stopped",
)
def beyond_end(seen: Evidence) -> Iterator[CheckResult]:
    for group in seen.facts.groups:
        old = None if seen.before is None else {each.group_id: each for each in seen.before.groups}.get(group.group_id)
        for place, offset in group.committed.items():
            if not _is_beyond(place, offset, seen.facts):
                continue
            # The offsets of groups are read after those of logs: members may have read on in between.
            is_at_rest = group.state in ("Empty", "Dead") or (
                seen.before is not None
                and old is not None
                and old.committed.get(place) == offset
                and _is_beyond(place, offset, seen.before)
            )
            if is_at_rest:
                end = seen.facts.by_partition[place].high_watermark
                yield CheckResult(
                    subject=f"group {group.group_id}: {place}",
                    message=f"group {group.group_id} is committed at {offset} of {place}, beyond the log's end {end}:"
                    " its next member begins where auto.offset.reset says",
                    fix=f"ottla groups reset {group.group_id} --to WHERE --topic {place.topic}:{place.partition}",
                )


def _is_beyond(place: TopicPartition, offset: int, facts: ClusterFacts) -> bool:
    fact = facts.by_partition.get(place)
    return fact is not None and fact.high_watermark is not None and offset > fact.high_watermark
