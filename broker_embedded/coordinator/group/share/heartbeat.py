"""ShareGroupHeartbeat: one request to join, to stay, to change the subscription, to learn and to leave.

    1  who is it?       new or known; a member with another epoch than its own is fenced
    2  what changed?    its subscription, or the topics' metadata: the group epoch moves
    3  target           computed again if the group epoch moved
    4  answer           the member has its target at once; the assignment is sent if the member cannot know it

Yields records and a response; nothing is changed here, except that records are replayed as they are made.
"""

from __future__ import annotations

from hashlib import blake2b

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.share.session import LONGEST_MEMBER_ID
from ottla_wire.protocol import ErrorCode

from ..consumer.assignment import NOTHING
from ..consumer.member import JOIN_EPOCH, LEAVE_EPOCH, AssignmentProgress, MemberSubscription
from ..heartbeats import HeartbeatRequest, HeartbeatResponse, MembershipConfig, Recorder, require
from ..member_records import CurrentAssignment, GroupEpoch, MemberMetadata
from .assignor import assign_simple
from .group import ShareGroup
from .records import ShareRecord


def check_request(request: HeartbeatRequest) -> None:
    """Refuse requests that are invalid for any group. Raises BrokerError."""
    require(request.group_id != "", "the group id is empty")
    require(0 < len(request.member_id) <= LONGEST_MEMBER_ID, "a member id has 1 to 36 characters")
    require(request.rack_id != "", "the rack id is empty")
    require(request.member_epoch >= LEAVE_EPOCH, f"member epoch {request.member_epoch} means nothing")
    if request.member_epoch == JOIN_EPOCH:
        require(bool(request.topic_names), "a joining member must subscribe to topics")


def heartbeat(
    group: ShareGroup,
    request: HeartbeatRequest,
    *,
    config: MembershipConfig,
    image: ClusterImage,
    now_ms: int,
    wall_ms: int,
) -> tuple[list[ShareRecord], HeartbeatResponse]:
    """Handle a member that is not leaving. BrokerError if it is refused; nothing has changed then."""
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != JOIN_EPOCH:
            raise group.unknown_member(request.member_id)
        group.check_room(config.max_size)
    elif request.member_epoch not in (JOIN_EPOCH, member.progress.epoch, member.progress.previous_epoch):
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {request.member_epoch}, the coordinator is at {member.progress.epoch}: join again",
        )
    before = MemberSubscription() if member is None else member.subscription
    subscription = request.subscription(before)
    recorder = Recorder(group)
    if member is None or member.subscription != subscription:
        recorder.add(MemberMetadata(member_id=request.member_id, subscription=subscription))
    must_assign = member is None or before.topic_names != subscription.topic_names
    _update_epoch(recorder, image=image, force=must_assign)
    if group.must_assign(now_ms, config.assignment_interval_ms):
        target = assign_simple(group.subscriptions(image), group.subscribed_topics(image))
        recorder.set_target(target, now_ms=now_ms, wall_ms=wall_ms)
    progress = group.members[request.member_id].progress
    assigned = group.targets.get(request.member_id, NOTHING)
    moved = AssignmentProgress(
        epoch=group.assignment_epoch,
        previous_epoch=progress.epoch if progress.epoch != group.assignment_epoch else progress.previous_epoch,
        assigned=assigned,
    )
    if moved != progress:
        recorder.add(CurrentAssignment(member_id=request.member_id, progress=moved))
    group.session_deadlines_ms[request.member_id] = now_ms + config.session_timeout_ms
    is_sent = request.member_epoch == JOIN_EPOCH or request.topic_names is not None or assigned != progress.assigned
    return recorder.records, HeartbeatResponse(
        member_id=request.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=assigned if is_sent or request.member_epoch != moved.epoch else None,
    )


def leave(
    group: ShareGroup, request: HeartbeatRequest, *, image: ClusterImage
) -> tuple[list[ShareRecord], HeartbeatResponse]:
    """Remove a member that says that it leaves. BrokerError if it is unknown."""
    if request.member_id not in group.members:
        raise group.unknown_member(request.member_id)
    response = HeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
    return remove_members(group, [request.member_id], image=image), response


def expire(group: ShareGroup, *, image: ClusterImage, now_ms: int) -> list[ShareRecord]:
    """Remove the members whose session has expired."""
    gone = group.silent_members(now_ms)
    return remove_members(group, gone, image=image) if gone else []


def remove_members(group: ShareGroup, member_ids: list[str], *, image: ClusterImage) -> list[ShareRecord]:
    """Remove members. The next heartbeat of any other computes the new target."""
    recorder = Recorder(group)
    for member_id in member_ids:
        recorder.remove(member_id)
    _update_epoch(recorder, image=image, force=True)
    return recorder.records


def _update_epoch(recorder: Recorder[ShareGroup], *, image: ClusterImage, force: bool) -> None:
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
