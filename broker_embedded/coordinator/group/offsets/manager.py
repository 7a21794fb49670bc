"""Commit, fetch, delete and expire offsets: checks against the group, records to the log, memory after the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker_embedded.common.config_definition import LONG_MAX
from ottla_wire.protocol import ErrorCode

from ...runtime.errors import client_error, is_too_large
from ...runtime.shard import CoordinatorRecord, ShardContext
from .. import records
from ..config import GroupConfig
from ..requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from .committed import OffsetAndMetadata, OffsetKey
from .expiry import ExpiryRule, expired
from .store import OffsetStore

if TYPE_CHECKING:
    from ..classic import ClassicGroup
    from ..consumer.group import ConsumerGroup

_MINUTE_MS = 60_000


class OffsetManager:
    """The offsets of one shard."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]) -> None:
        self.store = OffsetStore()
        self._context = context
        self._config = config

    # -- replay

    def replay(self, record: records.OffsetRecord, *, producer_id: int) -> None:
        if record.committed is None:
            self.store.remove(record.group_id, record.key)
        elif producer_id == -1:
            self.store.put(record.group_id, record.key, record.committed)
        else:
            self.store.put_pending(producer_id, record.group_id, record.key, record.committed)

    # -- requests

    def commit(self, request: CommitOffsets, on_done: Callable[[OffsetsCommitted], None]) -> None:
        """Append the commit, which the group has accepted. Other consumers see it once it is durable."""
        now_ms = self._context.now_ms()
        limit = self._config().broker.offset_metadata_max_bytes
        errors: dict[OffsetKey, ErrorCode] = {}
        accepted: dict[OffsetKey, OffsetAndMetadata] = {}
        for partition in request.partitions:
            if len(partition.metadata) > limit:
                errors[partition.key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            accepted[partition.key] = OffsetAndMetadata(
                offset=partition.offset,
                leader_epoch=partition.leader_epoch,
                metadata=partition.metadata,
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=None
                if request.retention_ms is None
                else min(now_ms + request.retention_ms, LONG_MAX),
            )
        if not accepted:
            on_done(OffsetsCommitted(partitions=errors))
            return

        def appended(error: ErrorCode) -> None:
            if request.is_transactional:
                self.store.arrived(request.group_id, accepted)
            if error is ErrorCode.NONE:
                for key, committed in accepted.items():
                    if request.is_transactional:
                        self.store.put_pending(request.producer_id, request.group_id, key, committed)
                    else:
                        self.store.put(request.group_id, key, committed)
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_too_large(error) else client_error(error)
            errors.update(dict.fromkeys(accepted, code))
            on_done(OffsetsCommitted(partitions=errors))

        batch = [records.offset_record(request.group_id, key, committed) for key, committed in accepted.items()]
        if not request.is_transactional:
            self._context.append(batch, appended)
            return
        self.store.announce(request.group_id, accepted)
        self._context.append_in_transaction(
            batch, appended, producer_id=request.producer_id, producer_epoch=request.producer_epoch
        )

    def fetch(self, request: FetchOffsets) -> OffsetsFetched:
        """Return committed offsets; with `require_stable` an offset with a pending transaction is a retriable error
        (KIP-447).
        """
        keys: Iterable[OffsetKey] = request.keys if request.keys is not None else self._known_keys(request)
        return OffsetsFetched(offsets={key: self._fetch_one(request, key) for key in keys})

    def delete(
        self, owner: ClassicGroup | ConsumerGroup, request: DeleteOffsets, on_done: Callable[[OffsetsDeleted], None]
    ) -> None:
        """Delete offsets of topics without subscribed members (KIP-496)."""
        error = owner.check_offset_delete()
        if error is not ErrorCode.NONE:
            on_done(OffsetsDeleted(error=error))
            return
        errors = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if owner.is_subscribed_to(key.topic) else ErrorCode.NONE
            for key in request.keys
        }
        known = self.store.of_group(request.group_id).keys() | self.store.pending_keys(request.group_id)
        doomed = [key for key, refused in errors.items() if refused is ErrorCode.NONE and key in known]

        def done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_done(OffsetsDeleted(error=error))
            else:
                on_done(OffsetsDeleted(partitions=errors))

        self.forget({request.group_id: doomed}, done)

    # -- forgetting

    def forget(
        self,
        keys: dict[str, list[OffsetKey]],
        on_done: Callable[[ErrorCode], None],
        *,
        also: Iterable[CoordinatorRecord] = (),
    ) -> None:
        """Append tombstones (and `also`, in the same batch), then forget."""
        batch = [records.offset_record(group_id, key, None) for group_id, each in keys.items() for key in each]
        batch.extend(also)
        if not batch:
            on_done(ErrorCode.NONE)
            return

        def appended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for group_id, each in keys.items():
                    for key in each:
                        self.store.remove(group_id, key)
            on_done(client_error(error))

        self._context.append(batch, appended)

    def expired_keys(self, group_id: str, rule: ExpiryRule) -> list[OffsetKey]:
        pending = self.store.pending_keys(group_id)
        found = expired(
            self.store.of_group(group_id),
            rule,
            now_ms=self._context.now_ms(),
            retention_ms=self._config().broker.offsets_retention_minutes * _MINUTE_MS,
        )
        return [key for key in found if key not in pending]

    def keys_of_topics(self, topics: set[str]) -> dict[str, list[OffsetKey]]:
        """Return group -> keys, for topics that were deleted."""
        found: dict[str, list[OffsetKey]] = {}
        for group_id in self.store.group_ids():
            keys = [key for key in self.store.of_group(group_id) if key.topic in topics]
            if keys:
                found[group_id] = keys
        return found

    # -- reading

    def _known_keys(self, request: FetchOffsets) -> list[OffsetKey]:
        keys = dict.fromkeys(self.store.of_group(request.group_id))
        if request.require_stable:
            keys.update(dict.fromkeys(self.store.pending_keys(request.group_id)))
        return list(keys)

    def _fetch_one(self, request: FetchOffsets, key: OffsetKey) -> FetchedOffset:
        if request.require_stable and self.store.is_pending(request.group_id, key):
            return FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self.store.get(request.group_id, key)
        if committed is None:
            return FetchedOffset()
        return FetchedOffset(offset=committed.offset, leader_epoch=committed.leader_epoch, metadata=committed.metadata)
