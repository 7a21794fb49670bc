"""Requests to the coordinator, without wire versions. Responses are per topic and partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from .offsets.committed import NO_LEADER_EPOCH, NO_OFFSET, OffsetKey

NO_GENERATION = -1
NO_MEMBER_ID = ""
NO_PRODUCER_ID = -1


@fact
class PartitionCommit:
    key: OffsetKey
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@fact
class CommitOffsets:
    """OffsetCommit. `generation` is the member epoch in a KIP-848 group."""

    group_id: str
    partitions: tuple[PartitionCommit, ...]
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    generation: int = NO_GENERATION
    retention_ms: int | None = None
    knows_member_epochs: bool = True
    """OffsetCommit 9 and later."""
    producer_id: int = NO_PRODUCER_ID
    """TxnOffsetCommit: the offsets count when this producer's transaction is committed."""
    producer_epoch: int = -1

    @property
    def is_transactional(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


@fact
class OffsetsCommitted:
    """One error per partition; `error` is set instead where the group refused the whole request."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[OffsetKey, ErrorCode] = field(default_factory=dict)

    def error_of(self, key: OffsetKey) -> ErrorCode:
        return self.partitions.get(key, self.error)


@fact
class FetchOffsets:
    """OffsetFetch for one group. `keys` None: all."""

    group_id: str
    keys: tuple[OffsetKey, ...] | None = None
    member_id: str | None = None
    member_epoch: int = NO_GENERATION
    require_stable: bool = False


@fact
class FetchedOffset:
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@fact
class OffsetsFetched:
    error: ErrorCode = ErrorCode.NONE
    offsets: Mapping[OffsetKey, FetchedOffset] = field(default_factory=dict)


@fact
class DeleteOffsets:
    group_id: str
    keys: tuple[OffsetKey, ...]


@fact
class OffsetsDeleted:
    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[OffsetKey, ErrorCode] = field(default_factory=dict)


@fact
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@fact
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@fact
class DescribedGroup:
    """A classic group as DescribeGroups shows it."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
