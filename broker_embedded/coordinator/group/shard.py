"""All groups and offsets of one partition of `__consumer_offsets`, and the requests of their members.

A group speaks one protocol at a time, classic or KIP-848. It may change it while it is empty: its record of the old
kind gets a tombstone, its offsets stay. A share group is one for good: other members are refused until it is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_wire.protocol import ErrorCode

from ..runtime.recurring import Recurring
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext
from . import records
from .admin import GroupAdmin
from .classic import (
    ClassicGroup,
    ClassicHeartbeatAnswer,
    Event,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeftMember,
    Sync,
    SyncAnswer,
)
from .classic_groups import ClassicGroups
from .config import GroupConfig
from .consumer.group import ConsumerGroup
from .consumer.member import JOIN_EPOCH
from .consumer_groups import ConsumerGroups
from .heartbeats import HeartbeatRequest, HeartbeatResponse
from .offsets.manager import OffsetManager
from .requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from .share_groups import ShareGroups
from .share_offsets import ShareOffsets, ShareStates
from .timed_groups import refusal

log = logging.getLogger(__name__)


class GroupShard:
    """Implements `runtime.shard.Shard`. Answers go through `Reply`, now or when the log has what they depend on."""

    def __init__(
        self,
        partition: int,
        context: ShardContext,
        config: Callable[[], GroupConfig],
        share_states: Callable[[], ShareStates | None] = lambda: None,
    ) -> None:
        self.partition = partition
        self._context = context
        self._config = config
        self.classic = ClassicGroups(context, config)
        self.consumer = ConsumerGroups(context, config)
        self.share = ShareGroups(context, config)
        self.share_offsets = ShareOffsets(context, self.share, share_states)
        self.offsets = OffsetManager(context, config)
        self.admin = GroupAdmin(self.classic, self.consumer, self.share, self.share_offsets, self.offsets)
        self._expiry = Recurring(
            context, lambda: config().broker.offsets_retention_check_interval_ms, self.admin.expire_offsets
        )

    # -- Shard

    def replay(self, record: CoordinatorRecord, *, timestamp_ms: int, producer_id: int) -> None:
        decoded = records.decode(record)
        match decoded:
            case records.OffsetRecord():
                self.offsets.replay(decoded, producer_id=producer_id)
            case records.ClassicGroupRecord():
                self.classic.replay(decoded)
            case None:
                self._replay_modern(record)

    def _replay_modern(self, record: CoordinatorRecord) -> None:
        decoded = self.consumer.records.decode(record)
        if decoded is not None:
            self.consumer.replay(*decoded)
            return
        of_share_group = self.share.records.decode(record)
        if of_share_group is None:
            log.warning("__consumer_offsets-%d: a record of an unknown kind is ignored", self.partition)
        else:
            self.share.replay(*of_share_group)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.store.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> None:
        self.classic.on_loaded()
        self.consumer.on_loaded()
        self.share.on_loaded()
        for group_id in self.offsets.store.group_ids():
            if self.consumer.get(group_id) is None:
                self.classic.get_or_create(group_id)
        self._expiry.start()

    def unload(self, error: ErrorCode) -> None:
        self._expiry.stop()
        self.classic.unload(error)
        self.consumer.unload()
        self.share.unload()

    # -- the classic protocol

    def join(self, group_id: str, event: Join, reply: Reply[JoinAnswer]) -> None:
        modern = self.consumer.get(group_id)
        if self.share.get(group_id) is not None or (modern is not None and not modern.is_empty):
            reply.settle(JoinAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=event.member_id))
            return
        group = self.classic.get(group_id)
        if group is None:
            if event.member_id:
                reply.settle(JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=event.member_id))
                return
            if modern is not None:
                self.consumer.remove(modern)
                self._context.append(self.consumer.tombstones(modern), self._reload_on_error)
            group = self.classic.get_or_create(group_id)
        self.classic.run(group, event)

    def sync(self, group_id: str, event: Sync, reply: Reply[SyncAnswer]) -> None:
        if not self._run(group_id, event):
            reply.settle(SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, group_id: str, event: Heartbeat, reply: Reply[ClassicHeartbeatAnswer]) -> None:
        if not self._run(group_id, event):
            reply.settle(ClassicHeartbeatAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def leave(self, group_id: str, event: Leave, reply: Reply[LeaveAnswer]) -> None:
        if self._run(group_id, event):
            return
        unknown = tuple(
            LeftMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for member in event.members
        )
        reply.settle(LeaveAnswer(members=unknown))

    def _run(self, group_id: str, event: Event) -> bool:
        group = self.classic.get(group_id)
        if group is None:
            return False
        self.classic.run(group, event)
        return True

    # -- KIP-848

    def consumer_heartbeat(self, request: HeartbeatRequest, reply: Reply[HeartbeatResponse]) -> None:
        group_id = request.group_id
        is_joining = request.member_epoch == JOIN_EPOCH
        classic = self.classic.get(group_id)
        is_unknown = self.consumer.get(group_id) is None and not is_joining
        is_shared = self.share.get(group_id) is not None
        if is_unknown or is_shared or (classic is not None and not classic.is_empty):
            kind = "does not exist" if classic is None else "is not a consumer group: members use the classic protocol"
            if is_shared:
                kind = "is not a consumer group: it is a share group"
            reply.settle(refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} {kind}"))
        elif classic is None:
            self.consumer.heartbeat(request, reply)
        else:
            # An empty classic group is deleted in favour of a KIP-848 group of the same id.
            self.consumer.heartbeat(
                request,
                reply,
                before=self.classic.tombstones(classic),
                on_joined=lambda: self.classic.remove(classic, ErrorCode.UNKNOWN_MEMBER_ID),
            )

    # -- KIP-932

    def share_heartbeat(self, request: HeartbeatRequest, reply: Reply[HeartbeatResponse]) -> None:
        group_id = request.group_id
        is_unknown = self.share.get(group_id) is None and request.member_epoch != JOIN_EPOCH
        is_other = self.classic.get(group_id) is not None or self.consumer.get(group_id) is not None
        if is_other or is_unknown:
            kind = "is not a share group" if is_other else "does not exist"
            reply.settle(refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} {kind}"))
            return
        group = self.share.heartbeat(request, reply)
        if group is not None:
            self.share_offsets.initialize(group)

    def _reload_on_error(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._context.reload(f"a group's change of protocol could not be written: {error.name}")

    # -- offsets

    def commit_offsets(self, request: CommitOffsets, reply: Reply[OffsetsCommitted]) -> None:
        error = self._check_commit(request)
        if error is not ErrorCode.NONE:
            reply.settle(OffsetsCommitted(error=error))
        else:
            self.offsets.commit(request, reply.settle)

    def _check_commit(self, request: CommitOffsets) -> ErrorCode:
        if self.share.get(request.group_id) is not None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        modern = self.consumer.get(request.group_id)
        if modern is not None:
            error = modern.check_offset_commit(
                request.member_id,
                request.generation,
                knows_member_epochs=request.knows_member_epochs,
                is_transactional=request.is_transactional,
            )
            # TxnOffsetCommit was made before member epochs: it has no word for a stale one.
            is_stale = request.is_transactional and error is ErrorCode.STALE_MEMBER_EPOCH
            return ErrorCode.ILLEGAL_GENERATION if is_stale else error
        group = self.classic.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            # An operator, or a consumer that assigns its partitions by hand: a group that only has offsets.
            group = self.classic.get_or_create(request.group_id)
        error = group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation,
            is_transactional=request.is_transactional,
        )
        member = group.members.get(request.member_id)
        if error is ErrorCode.NONE and member is not None:
            group.reset_session(member, now_ms=self._context.monotonic_ms())
        return error

    def fetch_offsets(self, request: FetchOffsets) -> OffsetsFetched:
        modern = self.consumer.get(request.group_id)
        if modern is not None:
            error = modern.check_offset_fetch(request.member_id, request.member_epoch)
            if error is not ErrorCode.NONE:
                return OffsetsFetched(error=error)
        return self.offsets.fetch(request)

    def delete_offsets(self, request: DeleteOffsets, reply: Reply[OffsetsDeleted]) -> None:
        group: ClassicGroup | ConsumerGroup | None = self.classic.get(request.group_id)
        group = group or self.consumer.get(request.group_id)
        if group is None:
            reply.settle(OffsetsDeleted(error=ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            self.offsets.delete(group, request, reply.settle)
