"""The states of a shard's share groups at the share coordinator: begun, read, altered and forgotten.

A record of the group says which share partitions have a state (`StatePartitions`), so that all of them are forgotten
with the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.share.events import UNCHANGED
from broker_embedded.share.persister import ShareKey
from ottla_wire.protocol import ErrorCode

from ..runtime.shard import ShardContext
from .consumer.assignment import TopicIdPartition
from .share.group import ShareGroup
from .share.records import PartitionsRecord, StatePartitions
from .share_groups import ShareGroups

log = logging.getLogger(__name__)

A = TypeVar("A")
Errors = dict[TopicIdPartition, ErrorCode]
Summaries = dict[TopicIdPartition, Any]
"""A `share.state_requests.Summary` or a BrokerError of each share partition."""


class ShareStates(Protocol):
    """The share coordinator, wherever it is."""

    def initialize(
        self, key: ShareKey, *, state_epoch: int, start_offset: int, on_done: Callable[[ErrorCode], None]
    ) -> None: ...

    def delete(self, key: ShareKey, on_done: Callable[[ErrorCode], None]) -> None: ...

    def summarize(self, key: ShareKey, on_done: Callable[[Any], None]) -> None: ...


class ShareOffsets:
    """Requests for many share partitions end when all of them have been answered."""

    def __init__(self, context: ShardContext, groups: ShareGroups, states: Callable[[], ShareStates | None]) -> None:
        self._context = context
        self._groups = groups
        self._states = states
        self._initializing: set[tuple[str, TopicIdPartition]] = set()

    def initialize(self, group: ShareGroup) -> None:
        """Begin the states of the partitions that the group's members subscribe to and that have none yet."""
        states = self._states()
        if states is None:
            return
        topics = group.subscribed_topics(self._context.metadata())
        new = [each for each in group.uninitialized(topics) if (group.group_id, each) not in self._initializing]
        if not new:
            return
        self._initializing.update((group.group_id, each) for each in new)

        def done(errors: Errors) -> None:
            self._initializing.difference_update((group.group_id, each) for each in new)
            begun = [each for each, error in errors.items() if error is ErrorCode.NONE]
            if begun and self._groups.get(group.group_id) is group:
                self._keep(group, group.partitions.initialized | frozenset(begun), lambda error: None)

        self._for_each(
            new,
            lambda each, on_done: states.initialize(
                _key(group, each), state_epoch=group.epoch, start_offset=UNCHANGED, on_done=on_done
            ),
            done,
        )

    def describe(
        self, group_id: str, wanted: Iterable[TopicIdPartition] | None, on_done: Callable[[Summaries], None]
    ) -> None:
        """Report the summary of each share partition; with None, of all that the group has. Raises
        GROUP_ID_NOT_FOUND."""
        group, states = self._group(group_id), self._needed()
        partitions = sorted(group.partitions.initialized if wanted is None else wanted)
        self._for_each(partitions, lambda each, each_done: states.summarize(_key(group, each), each_done), on_done)

    def alter(self, group_id: str, offsets: Mapping[TopicIdPartition, int], on_done: Callable[[Errors], None]) -> None:
        """Let an empty group begin at other offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group, states = self._empty_group(group_id), self._needed()
        self._groups.raise_epoch(group)

        def done(errors: Errors) -> None:
            altered = frozenset(each for each, error in errors.items() if error is ErrorCode.NONE)
            self._keep(group, group.partitions.initialized | altered, lambda error: on_done(errors))

        self._for_each(
            offsets,
            lambda each, each_done: states.initialize(
                _key(group, each), state_epoch=group.epoch, start_offset=offsets[each], on_done=each_done
            ),
            done,
        )

    def delete_topics(
        self, group_id: str, topic_ids: Iterable[bytes], on_done: Callable[[dict[bytes, ErrorCode]], None]
    ) -> None:
        """Forget an empty group's states of topics. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._empty_group(group_id)
        wanted = set(topic_ids)

        def done(errors: Errors) -> None:
            result = dict.fromkeys(wanted, ErrorCode.NONE)
            result.update({each.topic_id: error for each, error in errors.items() if error is not ErrorCode.NONE})
            on_done(result)

        self._forget(group, [each for each in group.partitions.initialized if each.topic_id in wanted], done)

    def forget_all(self, group: ShareGroup, on_done: Callable[[ErrorCode], None]) -> None:
        """Forget all states of a group that is about to be deleted."""

        def done(errors: Errors) -> None:
            on_done(next((error for error in errors.values() if error is not ErrorCode.NONE), ErrorCode.NONE))

        self._forget(group, group.partitions.initialized, done)

    def forget_topics(self, topic_ids: set[bytes]) -> None:
        """Forget the states of topics that were deleted."""
        for group in self._groups:
            gone = [each for each in group.partitions.initialized if each.topic_id in topic_ids]
            if gone:
                self._forget(group, gone, lambda errors: None)

    def _forget(
        self, group: ShareGroup, partitions: Iterable[TopicIdPartition], on_done: Callable[[Errors], None]
    ) -> None:
        states = self._needed()

        def done(errors: Errors) -> None:
            gone = frozenset(each for each, error in errors.items() if error is ErrorCode.NONE)
            self._keep(group, group.partitions.initialized - gone, lambda error: on_done(errors))

        self._for_each(partitions, lambda each, each_done: states.delete(_key(group, each), each_done), done)

    # -- parts

    def _group(self, group_id: str) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return group

    def _empty_group(self, group_id: str) -> ShareGroup:
        group = self._group(group_id)
        if not group.is_empty:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has {len(group.members)} members")
        return group

    def _needed(self) -> ShareStates:
        states = self._states()
        if states is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no share coordinator")
        return states

    def _keep(
        self, group: ShareGroup, initialized: frozenset[TopicIdPartition], on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Write which share partitions have a state."""
        if initialized == group.partitions.initialized:
            on_done(ErrorCode.NONE)
            return
        names = self._context.metadata().topic_names
        known = dict(group.partitions.names)
        topic_ids = {each.topic_id for each in initialized}
        named = tuple(sorted((topic_id, names.get(topic_id, known.get(topic_id, ""))) for topic_id in topic_ids))
        record = PartitionsRecord(partitions=StatePartitions(initialized=initialized, names=named))
        self._groups.add(group, record, on_done)

    @staticmethod
    def _for_each(
        partitions: Iterable[TopicIdPartition],
        ask: Callable[[TopicIdPartition, Callable[[A], None]], None],
        on_done: Callable[[dict[TopicIdPartition, A]], None],
    ) -> None:
        """Ask for each share partition, and report when all answers are there."""
        wanted = dict.fromkeys(partitions)
        answers: dict[TopicIdPartition, A] = {}

        def keep(each: TopicIdPartition, answer: A) -> None:
            answers[each] = answer
            if len(answers) == len(wanted):
                on_done({each: answers[each] for each in wanted})

        for each in wanted:
            ask(each, partial(keep, each))
        if not wanted:
            on_done({})


def _key(group: ShareGroup, partition: TopicIdPartition) -> ShareKey:
    return ShareKey(group.group_id, partition.topic_id, partition.partition)
