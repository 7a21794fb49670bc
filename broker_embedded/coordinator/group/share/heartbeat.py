"""ShareGroupHeartbeat: one request to join, to stay, to change the subscription, to learn and to leave.

    1  who is it?       new or known; a member with another epoch than its own is fenced
    2  what changed?    its subscription, or the topics' metadata: the group epoch moves
    3  target           computed again if the group epoch moved
    4  answer           the member has its target at once; the assignment is sent if the member cannot know it

Yields records and a response; nothing is changed here, except that records are replayed as they are made.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.share.session import LONGEST_MEMBER_ID
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from ..consumer.assignment import NOTHING
from ..consumer.member import JOIN_EPOCH, LEAVE_EPOCH, AssignmentProgress, MemberSubscription
from ..heartbeats import HeartbeatResponse, Recorder, require
from ..member_records import CurrentAssignment, GroupEpoch, MemberMetadata, TargetEpoch, TargetMember
from .assignor import assign_simple
from .group import ShareGroup
from .records import ShareRecord


@fact
class ShareGroupConfig:
    """The settings that a share group's membership obeys, its own or the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    max_size: int = 200


@fact
class ShareHeartbeat:
    """The request. `topic_names` None: unchanged."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] | None = None


ShareGroupRecorder: TypeAlias = Recorder[ShareGroup, ShareRecord]


def check_request(request: ShareHeartbeat) -> None:
    """Refuse requests that are invalid for any group. Raises BrokerError."""
    require(request.group_id != "", "the group id is empty")
    require(0 < len(request.member_id) <= LONGEST_MEMBER_ID, "a member id has 1 to 36 characters")
    require(request.rack_id != "", "the rack id is empty")
    require(request.member_epoch >= LEAVE_EPOCH, f"member epoch {request.member_epoch} means nothing")
    if request.member_epoch == JOIN_EPOCH:
        require(bool(request.topic_names), "a joining member must subscribe to topics")


def heartbeat(
    group: ShareGroup,
    request: ShareHeartbeat,
    *,
    config: ShareGroupConfig,
    image: ClusterImage,
    now_ms: int,
    wall_ms: int,
) -> tuple[list[ShareRecord], HeartbeatResponse]:
    """Handle a member that is not leaving. BrokerError if it is refused; nothing has changed then."""
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != JOIN_EPOCH:
            raise _unknown(group, request)
        if len(group.members) >= config.max_size:
            raise BrokerError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(group.members)} members, its maximum"
            )
    elif request.member_epoch not in (JOIN_EPOCH, member.progress.epoch, member.progress.previous_epoch):
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {request.member_epoch}, the coordinator is at {member.progress.epoch}: join again",
        )
    before = MemberSubscription() if member is None else member.subscription
    subscription = MemberSubscription(
        topic_names=before.topic_names if request.topic_names is None else request.topic_names,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
    )
    recorder = ShareGroupRecorder(group, group.replay)
    if member is None or member.subscription != subscription:
        recorder.add(MemberMetadata(member_id=request.member_id, subscription=subscription))
    must_assign = member is None or before.topic_names != subscription.topic_names
    _update_epoch(recorder, image=image, force=must_assign)
    if group.epoch > group.assignment_epoch and group.may_assign(now_ms, config.assignment_interval_ms):
        group.assigned_at_ms = now_ms
        _assign(recorder, image=image, wall_ms=wall_ms)
    progress = group.members[request.member_id].progress
    target = group.targets.get(request.member_id, NOTHING)
    moved = AssignmentProgress(
        epoch=group.assignment_epoch,
        previous_epoch=progress.epoch if progress.epoch != group.assignment_epoch else progress.previous_epoch,
        assigned=target,
    )
    if moved != progress:
        recorder.add(CurrentAssignment(member_id=request.member_id, progress=moved))
    group.session_deadlines_ms[request.member_id] = now_ms + config.session_timeout_ms
    is_sent = request.member_epoch == JOIN_EPOCH or request.topic_names is not None or target != progress.assigned
    return recorder.records, HeartbeatResponse(
        member_id=request.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=target if is_sent or request.member_epoch != moved.epoch else None,
    )


def leave(
    group: ShareGroup, request: ShareHeartbeat, *, image: ClusterImage
) -> tuple[list[ShareRecord], HeartbeatResponse]:
    """Remove a member that says that it leaves. BrokerError if it is unknown."""
    if request.member_id not in group.members:
        raise _unknown(group, request)
    response = HeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
    return remove_members(group, [request.member_id], image=image), response


def expire(group: ShareGroup, *, image: ClusterImage, now_ms: int) -> list[ShareRecord]:
    """Remove the members whose session has expired."""
    gone = [member_id for member_id, deadline_ms in group.session_deadlines_ms.items() if deadline_ms <= now_ms]
    return remove_members(group, gone, image=image) if gone else []


def remove_members(group: ShareGroup, member_ids: list[str], *, image: ClusterImage) -> list[ShareRecord]:
    """Remove members. The next heartbeat of any other computes the new target."""
    recorder = ShareGroupRecorder(group, group.replay)
    for member_id in member_ids:
        recorder.add(CurrentAssignment(member_id=member_id, progress=None))
        recorder.add(TargetMember(member_id=member_id, assignment=None))
        recorder.add(MemberMetadata(member_id=member_id, subscription=None))
    _update_epoch(recorder, image=image, force=True)
    return recorder.records


def _update_epoch(recorder: ShareGroupRecorder, *, image: ClusterImage, force: bool) -> None:
    """Move the group epoch if `force`, or if the subscribed topics changed."""
    group = recorder.group
    if not force and group.checked_image is image:
        return
    group.checked_image = image
    metadata_hash = _hash_of(group.subscribed_topics(image))
    if force or metadata_hash != group.metadata_hash:
        recorder.add(GroupEpoch(epoch=group.epoch + 1, metadata_hash=metadata_hash))


def _hash_of(topics: dict[bytes, int]) -> int:
    """Return a hash of the topics and their partitions. It differs from the one that Kafka computes."""
    if not topics:
        return 0
    text = b"".join(topic_id + count.to_bytes(4, "big") for topic_id, count in sorted(topics.items()))
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def _assign(recorder: ShareGroupRecorder, *, image: ClusterImage, wall_ms: int) -> None:
    """Add the differences of the new target from the last one, and its epoch."""
    group = recorder.group
    new = assign_simple(group.subscriptions(image), group.subscribed_topics(image))
    for member_id, assignment in new.items():
        if group.targets.get(member_id) != assignment:
            recorder.add(TargetMember(member_id=member_id, assignment=assignment))
    for member_id in [each for each in group.targets if each not in new]:
        recorder.add(TargetMember(member_id=member_id, assignment=None))
    recorder.add(TargetEpoch(epoch=group.epoch, timestamp_ms=wall_ms))


def _unknown(group: ShareGroup, request: ShareHeartbeat) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is not a member of group {group.group_id}")
