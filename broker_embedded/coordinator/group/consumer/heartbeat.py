"""ConsumerGroupHeartbeat: one request to join, report, learn and leave.

    1  who is it?          new, known, or a static member that comes back; fence who is not what it says
    2  what changed?       its subscription, the topics' metadata, what its pattern matches: the group epoch moves
    3  target              computed anew if the group epoch moved
    4  reconcile           the member goes one step towards its target
    5  answer              epoch, and the assignment if it changed or the member cannot know it

Yields records and a response; nothing is changed here, except that records are replayed as they are made so that each
step sees the last.
"""

from __future__ import annotations

from dataclasses import replace

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ErrorCode

from ..heartbeats import HeartbeatRequest, HeartbeatResponse, MembershipConfig, Recorder, require
from ..member_records import CurrentAssignment, MemberMetadata, TargetMember
from .assignment import NOTHING
from .assignors import ASSIGNORS
from .group import ConsumerGroup
from .member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
    MemberSubscription,
)
from .reconcile import reconcile
from .records import ConsumerRecord
from .target import group_changes, regex_changes, spec_of, unused_regexes


def check_request(request: HeartbeatRequest, config: MembershipConfig, *, requires_member_id: bool) -> None:
    """Refuse requests that are invalid for any group. Raises BrokerError."""
    require(request.group_id != "", "the group id is empty")
    require(request.instance_id != "", "the instance id is empty")
    require(request.rack_id != "", "the rack id is empty")
    if requires_member_id or request.member_epoch != JOIN_EPOCH:
        require(request.member_id != "", "the member id is empty")
    if request.member_epoch == JOIN_EPOCH:
        require(request.rebalance_timeout_ms != -1, "a joining member must say its rebalance timeout")
        require(request.owned is not None and not request.owned, "a joining member must own no partitions")
        has_subscription = bool(request.topic_names) or bool(request.topic_regex)
        require(has_subscription, "a joining member must subscribe to topics, by name or by pattern")
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        require(request.instance_id is not None, "only a static member can leave for a while")
    else:
        require(request.member_epoch >= LEAVE_EPOCH, f"member epoch {request.member_epoch} means nothing")
    if request.server_assignor is not None and request.server_assignor not in config.assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {request.server_assignor!r} is not served, {', '.join(config.assignors)} are",
        )


def heartbeat(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    *,
    config: MembershipConfig,
    image: ClusterImage,
    now_ms: int,
    wall_ms: int,
) -> tuple[list[ConsumerRecord], HeartbeatResponse]:
    """Handle a member that is not leaving. Raises BrokerError if it is refused; nothing has changed then."""
    current = group.members.get(request.member_id)
    if current is not None and current.progress.state is MemberState.UNKNOWN and request.owned != NOTHING:
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member is in a state that this broker does not know: give up all partitions and join again",
        )
    if current is None and (request.instance_id is None or group.static_member(request.instance_id) is None):
        group.check_room(config.max_size)
    predecessor = _check_member(group, request)
    before = group.members.get(request.member_id) if predecessor is None else predecessor
    subscription = request.subscription(before.subscription if before is not None else MemberSubscription())
    changed_regexes = regex_changes(  # refuses a wrong pattern
        group, subscription, image=image, wall_ms=wall_ms, may_describe=request.may_describe
    )

    recorder = Recorder(group)
    if predecessor is not None and predecessor.member_id != request.member_id:
        _take_over(recorder, predecessor, request.member_id)
    known = group.members.get(request.member_id)
    must_assign = known is None
    if known is None or known.subscription != subscription:
        old = MemberSubscription() if known is None else known.subscription
        must_assign |= old.topic_names != subscription.topic_names or old.topic_regex != subscription.topic_regex
        recorder.add(MemberMetadata(member_id=request.member_id, subscription=subscription))
    for regex in changed_regexes:
        recorder.add(regex)
    for change in group_changes(group, image=image, force=must_assign):
        recorder.add(change)
    if group.must_assign(now_ms, config.assignment_interval_ms):
        assign = ASSIGNORS[group.assignor(config.assignors[0])]
        recorder.set_target(assign(spec_of(group)), now_ms=now_ms)

    for unused in unused_regexes(group):
        recorder.add(unused)

    progress_before = group.members[request.member_id].progress
    _reconcile(recorder, request, now_ms)
    member = group.members[request.member_id]
    group.session_deadlines_ms[member.member_id] = now_ms + config.session_timeout_ms
    # Whoever has just joined says everything, so a replaced static member is told everything as well.
    has_assignment = request.is_full or member.progress.assigned != progress_before.assigned
    return recorder.records, HeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.progress.epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=member.progress.assigned if has_assignment else None,
    )


def _reconcile(recorder: Recorder[ConsumerGroup], request: HeartbeatRequest, now_ms: int) -> None:
    group = recorder.group
    member = group.members[request.member_id]
    progress = member.progress
    if progress.is_reconciled_to(group.assignment_epoch):
        return
    moved = reconcile(
        progress,
        target_epoch=group.assignment_epoch,
        target=group.target_of(member),
        is_owned=group.is_owned,
        reported=request.owned,
    )
    if moved == progress:
        return
    recorder.add(CurrentAssignment(member_id=member.member_id, progress=moved))
    if moved.state is MemberState.UNREVOKED_PARTITIONS:
        deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
        group.rebalance_deadlines_ms[member.member_id] = (deadline_ms, moved.epoch)
    else:
        group.rebalance_deadlines_ms.pop(member.member_id, None)


# -- who is it?


def _check_member(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember | None:
    """Return the static member that the request's member is or replaces, None for a dynamic member. Raises
    BrokerError.
    """
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is not None:
            _check_epoch(member, request)
        elif request.member_epoch != JOIN_EPOCH:
            raise group.unknown_member(request.member_id)
        return None
    current = group.static_member(request.instance_id)
    if request.member_epoch == JOIN_EPOCH:
        is_released = current is None or current.progress.epoch == LEAVE_STATIC_EPOCH
        if current is not None and not is_released and current.member_id != request.member_id:
            raise BrokerError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"instance id {request.instance_id!r} is in use by member {current.member_id!r}",
            )
        return current
    member = check_static_member(group, request)
    _check_epoch(member, request)
    return member


def check_static_member(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
    """Return the member that holds the instance id, if it sent the request. Raises BrokerError otherwise."""
    assert request.instance_id is not None
    current = group.static_member(request.instance_id)
    if current is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {request.instance_id!r} is unknown")
    if current.member_id != request.member_id:
        raise BrokerError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance id {request.instance_id!r} belongs to member {current.member_id!r}, not {request.member_id!r}",
        )
    return current


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Check the member epoch. An older one is accepted once: the response with the newer one may have been lost."""
    progress = member.progress
    if request.member_epoch in (progress.epoch, JOIN_EPOCH):
        return
    owns_no_more = request.owned is not None and request.owned <= progress.assigned
    missed_an_answer = request.member_epoch == progress.previous_epoch and owns_no_more
    if not missed_an_answer:
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {request.member_epoch}, the coordinator is at {progress.epoch}:"
            " give up all partitions and join again",
        )


def _take_over(recorder: Recorder[ConsumerGroup], old: ConsumerMember, member_id: str) -> None:
    """Give a returning static member its predecessor's state under the new id."""
    target = recorder.group.target_of(old)
    recorder.remove(old.member_id)
    recorder.add(MemberMetadata(member_id=member_id, subscription=old.subscription))
    recorder.add(TargetMember(member_id=member_id, assignment=target))
    came_back = replace(old.progress, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    recorder.add(CurrentAssignment(member_id=member_id, progress=came_back))
