"""Operations on the groups of a shard: list, describe, delete, expire."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla_wire.protocol import ErrorCode

from .classic import ClassicGroup, State
from .classic_groups import ClassicGroups
from .consumer.group import ConsumerGroup
from .consumer_groups import ConsumerGroups
from .offsets.committed import OffsetKey
from .offsets.expiry import ExpiryRule
from .offsets.manager import OffsetManager
from .requests import DescribedGroup, DescribedMember, ListedGroup
from .share.group import ShareGroup
from .share_groups import ShareGroups
from .share_offsets import ShareOffsets
from .timed_groups import Groups

log = logging.getLogger(__name__)

AnyGroup = ClassicGroup | ConsumerGroup | ShareGroup


class GroupAdmin:
    """Works on the groups and offsets of one shard."""

    def __init__(
        self,
        classic: ClassicGroups,
        consumer: ConsumerGroups,
        share: ShareGroups,
        share_offsets: ShareOffsets,
        offsets: OffsetManager,
    ) -> None:
        self._classic = classic
        self._consumer = consumer
        self._share = share
        self._groups: dict[type, Groups[Any]] = {ClassicGroup: classic, ConsumerGroup: consumer, ShareGroup: share}
        self._share_offsets = share_offsets
        self._offsets = offsets

    # -- showing

    def list_groups(self) -> list[ListedGroup]:
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                state=group.state.value,
                group_type=groups.kind,
            )
            for groups in self._groups.values()
            for group in groups
        ]

    def describe_group(self, group_id: str) -> DescribedGroup:
        """Describe a classic group. Member metadata is returned only for a stable group, as in Kafka."""
        group = self._classic.get(group_id)
        if group is None:
            is_other_type = self._consumer.get(group_id) is not None or self._share.get(group_id) is not None
            return DescribedGroup(
                group_id=group_id,
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} {'is not a classic group' if is_other_type else 'not found'}.",
                state=State.DEAD.value,
            )
        is_stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol=(group.protocol or "") if is_stable else "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata_of(group.protocol) if is_stable else b"",
                    assignment=member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ),
        )

    def member_count(self, group_id: str) -> int:
        """Return the number of members of a group; 0 for an unknown group."""
        group = self._get(group_id)
        return 0 if group is None else len(group.members)

    def _get(self, group_id: str) -> AnyGroup | None:
        return self._classic.get(group_id) or self._consumer.get(group_id) or self._share.get(group_id)

    # -- deleting

    def delete_group(self, group_id: str, on_done: Callable[[ErrorCode], None]) -> None:
        """Delete an empty group with its offsets."""
        group = self._get(group_id)
        if group is None:
            on_done(ErrorCode.GROUP_ID_NOT_FOUND)
            return
        error = group.check_delete()
        if error is not ErrorCode.NONE:
            on_done(error)
            return
        if isinstance(group, ShareGroup):
            self._delete_share_group(group, on_done)
            return
        store = self._offsets.store
        self._delete({group_id: [*store.of_group(group_id).keys() | store.pending_keys(group_id)]}, [group], on_done)

    def _delete_share_group(self, group: ShareGroup, on_done: Callable[[ErrorCode], None]) -> None:
        """Delete the states of its share partitions first: nothing else knows which there are."""

        def forgotten(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_done(error)
            elif not group.is_empty:
                on_done(ErrorCode.NON_EMPTY_GROUP)
            else:
                self._delete({}, [group], on_done)

        self._share_offsets.forget_all(group, forgotten)

    def forget_topic_ids(self, topic_ids: set[bytes]) -> None:
        """Topics were deleted: share groups have no state of them any more."""
        self._share_offsets.forget_topics(topic_ids)

    def forget_topics(self, topics: set[str]) -> None:
        """Delete the offsets of deleted topics: they must not count for a new topic of the same name."""
        self._offsets.forget(self._offsets.keys_of_topics(topics), _log_failure)

    def expire_offsets(self) -> None:
        """Delete offsets past their retention, and groups without any."""
        store = self._offsets.store
        doomed: dict[str, list[OffsetKey]] = {}
        dead: list[AnyGroup] = []
        groups: list[ClassicGroup | ConsumerGroup] = [*self._classic, *self._consumer]  # a share group stays
        for group in groups:
            rule = _expiry_rule(group)
            keys = self._offsets.expired_keys(group.group_id, rule) if rule is not None else []
            if keys:
                doomed[group.group_id] = keys
            keeps_offsets = len(keys) < len(store.of_group(group.group_id)) or store.has_pending(group.group_id)
            is_awaited = isinstance(group, ClassicGroup) and bool(group.pending_join)
            if group.is_empty and not keeps_offsets and not is_awaited:
                dead.append(group)
        self._delete(doomed, dead, _log_failure)

    def _delete(
        self, keys: dict[str, list[OffsetKey]], dead: Sequence[AnyGroup], on_done: Callable[[ErrorCode], None]
    ) -> None:
        def appended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for group in dead:
                    groups = self._groups[type(group)]
                    # If a member joined while the tombstone was written, the group lives on.
                    if group.is_empty and groups.get(group.group_id) is group:
                        groups.remove(group)
            on_done(error)

        tombstones = [record for group in dead for record in self._groups[type(group)].tombstones(group)]
        self._offsets.forget(keys, appended, also=tombstones)


def _expiry_rule(group: ClassicGroup | ConsumerGroup) -> ExpiryRule | None:
    """Return how a group's offsets expire, or None if they do not."""
    if isinstance(group, ConsumerGroup):
        return ExpiryRule(is_in_use=group.is_subscribed_to)
    if group.protocol_type is None:
        return ExpiryRule(is_in_use=lambda topic: False)
    if group.is_empty:
        return ExpiryRule(is_in_use=lambda topic: False, empty_since_ms=group.state_since_ms)
    if group.state is State.STABLE and group.subscribed_topics is not None:
        return ExpiryRule(is_in_use=group.is_subscribed_to)
    return None


def _log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        log.warning("expired offsets stay until the next check: %s", error.name)
