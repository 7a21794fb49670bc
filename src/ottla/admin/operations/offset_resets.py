"""Where a group goes on reading: planned, shown, carried out, and undone.

A plan is made of what is committed and what the logs have, and says for each partition what would change. Carrying it
out first looks whether the group still has no members and has committed nothing since; the file of a plan has what was
committed before, of which cluster and which topics, so that a restore puts it back there or says why it must not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.admin.errors import GroupInUse, raise_from_step
from ottla.admin.facts.admin_operation import AdminOperation, problem_of
from ottla.admin.facts.cluster_facts import ClusterFacts, CommittedOffset, GroupInfo, Int64, Part
from ottla.admin.facts.facts_file import from_json, to_json
from ottla.admin.facts.facts_reader import WantedFacts, read_facts
from ottla.admin.operations.consumer_groups import describe_groups, forget_offsets, refuse_share_groups
from ottla.admin.operations.offset_changes import Problems, change_offsets
from ottla.admin.operations.partition_offsets import offsets_at
from ottla.admin.operations.share_offsets import delete_share_offsets, set_share_offsets
from ottla.errors import InputError, OttlaError, UnknownTopic
from ottla.topics import TopicPartition, named_topics
from ottla.wire_client.errors import BrokerRefused, PartitionUnavailable
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

SCHEMA: Final = "ottla.group-offsets/1"

_MOST_NAMED: Final = 5
_MILLISECONDS: Final = 10**12
"""An offset that is larger and beyond the end of the log was meant as a time: milliseconds since the epoch, in 2001 or
later."""


@fact
class OffsetMove:
    """One partition of a reset. `committed` and `new` are offsets of the next record; None means nothing is committed.
    `is_clamped`: the requested offset is outside the log (`log_start` to `log_end`), so `new` is the nearer end."""

    topic: str
    topic_id: str | None
    partition: int
    committed: int | None
    new: int | None
    log_start: int
    log_end: int
    is_clamped: bool = False
    forgets_settled: bool = False
    """Whether a share group has settled records behind its start offset, which a reset forgets."""

    @property
    def records(self) -> int | None:
        """Return how many records more the group will read (negative: fewer, they are skipped); None if not
        comparable."""
        if self.committed is None or self.new is None:
            return None
        return max(self.committed, self.log_start) - self.new

    @property
    def is_change(self) -> bool:
        """Return whether the reset moves this partition at all."""
        return self.committed != self.new or self.forgets_settled


@fact
class ResetPlan:
    """A planned reset of a group's offsets. `members` must stop before it."""

    group_id: str
    cluster_id: str
    at_ms: int
    """When it was planned, in milliseconds since the epoch."""
    moves: tuple[OffsetMove, ...]
    """One entry for each partition of the plan."""
    members: tuple[str, ...] = ()
    group_type: str = ""
    """Classic, Consumer or Share."""


@fact
class SavedOffset:
    """Committed offsets by partition of a topic; None means no commit."""

    topic: str
    topic_id: str | None
    partition: Int64
    offset: Int64 | None


@fact
class SavedOffsets:
    """The offsets of a group as they were, in a file."""

    group_id: str
    cluster_id: str
    at_ms: Int64
    offsets: tuple[SavedOffset, ...]
    group_type: str = ""
    """Classic, Consumer or Share; empty in files of older versions."""


def dump_undo(plan: ResetPlan) -> bytes:
    """Return the file that puts back what the plan changes."""
    offsets = tuple(
        SavedOffset(topic=each.topic, topic_id=each.topic_id, partition=each.partition, offset=each.committed)
        for each in plan.moves
    )
    saved = SavedOffsets(
        group_id=plan.group_id,
        cluster_id=plan.cluster_id,
        at_ms=plan.at_ms,
        offsets=offsets,
        group_type=plan.group_type,
    )
    return to_json(SCHEMA, saved)


def load_undo(data: bytes, *, source: str) -> SavedOffsets:
    """Return what `dump_undo` wrote. InputError where it is something else."""
    return from_json(data, SCHEMA, SavedOffsets, source=source)


def plan_reset(
    group: str,
    *,
    to: str | int | dt.datetime | None,
    shift: int | None,
    topics: Mapping[str, Collection[int] | None] | None,
    at_ms: int,
) -> AdminOperation[ResetPlan]:
    """Plan a move of the group to a position, or by a number of records (negative: back)."""
    if (to is None) == (shift is None):
        raise InputError("a reset needs either a position (to) or a number of records (shift)")
    if topics is None:
        (found,) = yield from describe_groups([group], at_ms=at_ms)
    else:
        found = yield from _described(group, at_ms)
    facts = yield from _topics_of(found, topics, at_ms)
    places = _places(found, topics, facts)
    wanted = yield from _wanted(to, shift, places, found, at_ms)
    return _plan(found, facts, wanted, at_ms)


def plan_copy(group: str, to: str, *, at_ms: int) -> AdminOperation[ResetPlan]:
    """Return the plan that sets the offsets of group `to` to those of `group`, for every partition that `group` has
    committed.

    A group is copied to itself for its undo file. Raises InputError where one of two groups is a share group.
    """
    (source,) = yield from describe_groups([group], at_ms=at_ms)
    target = yield from _described(to, at_ms)
    if group != to:
        refuse_share_groups("the offsets of a share group are not copied", source, target)
    facts = yield from _topics_of(source, None, at_ms)
    places = {place: offset for place, offset in source.committed.items() if place in facts.by_partition}
    return _plan(target, facts, places, at_ms)


def plan_restore(saved: SavedOffsets, *, at_ms: int) -> AdminOperation[ResetPlan]:
    """Plan a move of a group back to the offsets of a file."""
    places: dict[TopicPartition, int | None] = {
        TopicPartition(each.topic, each.partition): each.offset for each in saved.offsets
    }
    group = yield from _described(saved.group_id, at_ms)
    facts = yield from _topics_of(group, dict.fromkeys(place.topic for place in places), at_ms)
    if saved.group_type == "Share" and group.type != "Share":
        raise InputError(
            f"the file is of share group {saved.group_id}, and the cluster has no such share group; a member of it has "
            "to join before its offsets can be restored"
        )
    if facts.cluster_id != saved.cluster_id:
        raise InputError(f"the file is of cluster {saved.cluster_id!r}, and this is cluster {facts.cluster_id!r}")
    for each in saved.offsets:
        topic = facts.by_topic[each.topic]
        if each.topic_id is not None and topic.topic_id != each.topic_id:
            raise InputError(
                f"{each.topic}: deleted and created again since the file was written, so its offsets no longer apply"
            )
    plan = _plan(group, facts, places, at_ms)
    _refuse_other_losses(group, plan.moves)
    return plan


def apply_reset(plan: ResetPlan) -> AdminOperation[None]:
    """Commit what was planned. GroupInUse where the group has members, InputError where it has committed since,
    PartlyDone where some offsets were changed and some were not."""
    changes = [move for move in plan.moves if move.is_change]
    if not changes:
        return
    group = yield from _described(plan.group_id, plan.at_ms)
    refuse_members(plan.group_id, members_of(group))
    if group.type == "Share":  # a deletion takes the topic's other offsets with it: those that stay are set again
        deleted = {move.topic for move in changes if move.new is None}
        changes += [move for move in plan.moves if move.topic in deleted and not move.is_change]
    committed = group.committed
    for move in changes:
        found = committed.get(TopicPartition(move.topic, move.partition))
        if found not in (move.committed, move.new):  # the latter where this is tried again
            raise InputError(
                f"group {plan.group_id}: {move.topic}-{move.partition} was at {_format_offset(move.committed)} when "
                f"this was planned and is at {_format_offset(found)} now; plan again"
            )
    _refuse_other_losses(group, changes)
    forgotten = [TopicPartition(move.topic, move.partition) for move in changes if move.new is None]
    offsets = {TopicPartition(move.topic, move.partition): move.new for move in changes if move.new is not None}
    is_share = group.type == "Share"
    forget = (delete_share_offsets if is_share else forget_offsets)(plan.group_id, forgotten)
    commit = (set_share_offsets if is_share else _commit)(plan.group_id, offsets)
    names = [str(place) for place in (*forgotten, *offsets)]
    done: list[str] = []
    for places, step in ((forgotten, forget), (list(offsets), commit)):
        try:
            yield from step
        except OttlaError as error:
            raise_from_step("offsets", error, names=names, done=done)
        done += map(str, places)


def _refuse_other_losses(group: GroupInfo, moves: Sequence[OffsetMove]) -> None:
    """Raise InputError where deleting offsets takes others with it: Kafka has DeleteShareGroupOffsets for whole topics
    only (KIP-932)."""
    if group.type != "Share":
        return
    moved = {TopicPartition(move.topic, move.partition) for move in moves}
    topics = {move.topic for move in moves if move.is_change and move.new is None}
    for place, offset in group.committed.items():
        if place.topic in topics and place not in moved:
            raise InputError(
                f"group {group.group_id}: the offsets of a share group are deleted by whole topics, and {place}, which"
                f" stays, would lose {offset}; reset it as well"
            )


def members_of(group: GroupInfo) -> tuple[str, ...]:
    """Return the members by the names that an operator recognises."""
    return tuple(f"{member.client_id} at {member.host} ({member.member_id})" for member in group.members or ())


def _described(group: str, at_ms: int) -> AdminOperation[GroupInfo]:
    """Return the group, or an empty one of this name: one that committed nothing yet may be given offsets."""
    parts = frozenset({Part.GROUPS, Part.GROUP_MEMBERS, Part.GROUP_OFFSETS})
    facts = yield from read_facts(WantedFacts(parts=parts, at_ms=at_ms, groups=(group,)))
    if facts.not_read:
        raise BrokerRefused(facts.not_read[0].reason)
    if facts.groups:
        (found,) = facts.groups
        return found
    return GroupInfo(group_id=group, type="Classic", state="Dead", coordinator=-1, members=(), offsets=())


def _topics_of(
    group: GroupInfo, topics: Mapping[str, Collection[int] | None] | None, at_ms: int
) -> AdminOperation[ClusterFacts]:
    """Return the topics that are concerned, with the ends of their logs."""
    names = sorted(topics if topics is not None else {each.topic for each in group.offsets or ()})
    if not names:
        raise InputError(f"group {group.group_id} has no committed offsets; name the topics to reset")
    facts = yield from read_facts(WantedFacts(parts=frozenset({Part.OFFSETS}), at_ms=at_ms, topics=tuple(names)))
    for name in names:
        if name not in facts.by_topic and topics is not None:
            raise UnknownTopic(f"{name}: the cluster has no such topic")
    return facts


def _places(
    group: GroupInfo, topics: Mapping[str, Collection[int] | None] | None, facts: ClusterFacts
) -> list[TopicPartition]:
    if topics is None:
        return [place for place in sorted(group.committed) if place in facts.by_partition]
    places: list[TopicPartition] = []
    for name, numbers in topics.items():
        there = [each.partition for each in facts.by_topic[name].partitions]
        for number in there if numbers is None else sorted(numbers):
            if number not in there:
                raise UnknownTopic(f"{name}-{number}: the topic has {len(there)} partitions, and no such partition")
            places.append(TopicPartition(name, number))
    return places


def _wanted(
    to: str | int | dt.datetime | None, shift: int | None, places: list[TopicPartition], group: GroupInfo, at_ms: int
) -> AdminOperation[dict[TopicPartition, int | None]]:
    if shift is not None:
        committed = group.committed
        uncommitted = [str(place) for place in places if place not in committed]
        if uncommitted:
            raise InputError(
                f"group {group.group_id} has no committed offset for {', '.join(uncommitted[:_MOST_NAMED])};"
                " a shift needs one"
            )
        return {place: committed[place] + shift for place in places}
    if isinstance(to, int):
        if to < 0:
            raise InputError(f"found offset {to}, wanted 0 or more")
        return dict.fromkeys(places, to)
    if to is None:
        return {}
    found = yield from offsets_at(places, to, now_ms=at_ms)
    return dict(found)


def _plan(group: GroupInfo, facts: ClusterFacts, wanted: Mapping[TopicPartition, int | None], at_ms: int) -> ResetPlan:
    committed = group.committed
    settled = {
        TopicPartition(each.topic, each.partition)
        for each in group.offsets or ()
        if each.unsettled is not None and each.unsettled != _end_of(facts, each) - each.offset
    }
    moves = []
    for place in sorted(wanted):
        fact = facts.by_partition.get(place)
        if fact is None:
            raise UnknownTopic(f"{place}: the cluster has no such partition")
        start, end = fact.log_start, fact.high_watermark
        if start is None or end is None:
            reasons = [each.reason for each in facts.not_read]
            raise PartitionUnavailable(
                f"{place}: the start and end of its log are unknown: {(reasons or ['no leader'])[0]}"
            )
        asked = wanted[place]
        if asked is not None and asked > end and asked >= _MILLISECONDS:
            raise InputError(
                f"{place}: found offset {asked}, wanted one of its log, which ends at {end}, or a time as ISO 8601"
                " (2026-11-22T10:00); milliseconds since the epoch are not taken for a time"
            )
        new = None if asked is None else min(max(asked, start), end)
        moves.append(
            OffsetMove(
                topic=place.topic,
                topic_id=facts.by_topic[place.topic].topic_id,
                partition=place.partition,
                committed=committed.get(place),
                new=new,
                log_start=start,
                log_end=end,
                is_clamped=new != asked,
                forgets_settled=place in settled,
            )
        )
    return ResetPlan(
        group_id=group.group_id,
        cluster_id=facts.cluster_id,
        at_ms=at_ms,
        moves=tuple(moves),
        members=members_of(group),
        group_type=group.type,
    )


def _commit(group: str, offsets: Mapping[TopicPartition, int]) -> AdminOperation[None]:
    topics = named_topics(
        (place, {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""})
        for place, offset in offsets.items()
    )
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": topics,
    }

    def read(answer: Any) -> Problems:
        for topic in answer.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                yield place, _not_committed(group, place, each.error_code)

    if offsets:
        yield from change_offsets(group, ApiKey.OFFSET_COMMIT, body, offsets, read)


def _not_committed(group: str, place: TopicPartition, code: int) -> OttlaError | None:
    if code in _HAS_MEMBERS:
        return GroupInUse(f"group {group} has members; stop them first")
    return problem_of(f"group {group}: {place}", code)


_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


def refuse_members(group: str, members: tuple[str, ...]) -> None:
    """Raise `GroupInUse` if there are any."""
    if members:
        more = f" and {len(members) - _MOST_NAMED} more" if len(members) > _MOST_NAMED else ""
        raise GroupInUse(f"group {group} has members; stop them first: {', '.join(members[:_MOST_NAMED])}{more}")


def _end_of(facts: ClusterFacts, each: CommittedOffset) -> int:
    fact = facts.by_partition.get(TopicPartition(each.topic, each.partition))
    return each.offset if fact is None or fact.high_watermark is None else fact.high_watermark


def _format_offset(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
