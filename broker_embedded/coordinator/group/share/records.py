"""The records of a share group in the log; see `member_records`."""

from __future__ import annotations

from typing import Any, TypeAlias

from ottla_wire.facts import fact
from ottla_wire.protocol.message import Message

from ..consumer.assignment import NOTHING, Assignment, of_message, to_message
from ..member_records import Fields, MemberRecord, RecordKind, RecordKinds, member_kinds


@fact
class StatePartitions:
    """The share partitions whose state the share coordinator has, or is about to have."""

    initializing: Assignment = NOTHING
    initialized: Assignment = NOTHING
    names: tuple[tuple[bytes, str], ...] = ()
    """Topic id and name of each topic in here."""


@fact
class PartitionsRecord:
    partitions: StatePartitions | None


ShareRecord: TypeAlias = MemberRecord | PartitionsRecord


def _partitions(record: PartitionsRecord) -> Fields:
    assert record.partitions is not None
    names = dict(record.partitions.names)

    def named(topics: Assignment) -> list[dict[str, Any]]:
        return [{**topic, "topic_name": names.get(topic["topic_id"], "")} for topic in to_message(topics)]

    return {
        "initializing_topics": named(record.partitions.initializing),
        "initialized_topics": named(record.partitions.initialized),
        "deleting_topics": [],
    }


def _partitions_of(value: Message) -> Fields:
    topics = [*value.initializing_topics, *value.initialized_topics]
    partitions = StatePartitions(
        initializing=of_message(value.initializing_topics),
        initialized=of_message(value.initialized_topics),
        names=tuple(sorted({(bytes(topic.topic_id), topic.topic_name) for topic in topics})),
    )
    return {"partitions": partitions}


RECORDS: RecordKinds[ShareRecord] = RecordKinds(
    *member_kinds("ShareGroup", group=11, member=10, target_epoch=12, target=13, current=14),
    RecordKind(15, "ShareGroupStatePartitionMetadata", PartitionsRecord, "partitions", _partitions, _partitions_of),
)
