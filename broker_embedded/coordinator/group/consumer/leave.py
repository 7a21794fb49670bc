"""Removal of members: on request, temporarily, or after a timeout."""

from __future__ import annotations

from dataclasses import replace

from broker_embedded.metadata.image import ClusterImage

from ..heartbeats import HeartbeatRequest, HeartbeatResponse, Recorder
from ..member_records import CurrentAssignment
from .assignment import NOTHING
from .group import ConsumerGroup
from .heartbeat import check_static_member
from .member import LEAVE_STATIC_EPOCH, MemberState
from .records import ConsumerRecord
from .target import group_changes, unused_regexes


def leave(
    group: ConsumerGroup, request: HeartbeatRequest, *, image: ClusterImage
) -> tuple[list[ConsumerRecord], HeartbeatResponse]:
    """Remove a member: epoch -1 leaves, -2 (static members) leaves and keeps the place for a session. BrokerError if
    unknown."""
    if request.instance_id is None:
        if request.member_id not in group.members:
            raise group.unknown_member(request.member_id)
    else:
        check_static_member(group, request)
    response = HeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVE_STATIC_EPOCH:
        progress = group.members[request.member_id].progress
        away = replace(progress, epoch=LEAVE_STATIC_EPOCH, pending_revocation=NOTHING)
        recorder = Recorder(group)
        recorder.add(CurrentAssignment(member_id=request.member_id, progress=away))
        group.rebalance_deadlines_ms.pop(request.member_id, None)
        return recorder.records, response
    return remove_members(group, [request.member_id], image=image), response


def expire(group: ConsumerGroup, *, image: ClusterImage, now_ms: int) -> list[ConsumerRecord]:
    """Remove members with an expired session, or with partitions kept beyond the rebalance timeout."""
    silent = set(group.silent_members(now_ms))
    stuck = set()
    for member_id, (deadline_ms, epoch) in list(group.rebalance_deadlines_ms.items()):
        if deadline_ms > now_ms:
            continue
        del group.rebalance_deadlines_ms[member_id]
        progress = group.members[member_id].progress
        if progress.epoch == epoch and progress.state is MemberState.UNREVOKED_PARTITIONS:
            stuck.add(member_id)
    gone = [member_id for member_id in group.members if member_id in silent or member_id in stuck]
    for member_id in silent:
        group.session_deadlines_ms.pop(member_id, None)
    return remove_members(group, gone, image=image) if gone else []


def remove_members(group: ConsumerGroup, member_ids: list[str], *, image: ClusterImage) -> list[ConsumerRecord]:
    """Remove members. Their partitions are free at once; the next heartbeat of any member computes the new target."""
    recorder = Recorder(group)
    for member_id in member_ids:
        recorder.remove(member_id)
    for regex in unused_regexes(group):
        recorder.add(regex)
    for change in group_changes(group, image=image, force=True):
        recorder.add(change)
    return recorder.records
