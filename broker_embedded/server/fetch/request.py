"""Which partitions a Fetch request reads: its own list, or what its session (KIP-227) remembers."""

from __future__ import annotations

from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessionCache,
    SessionPartition,
)
from ottla_wire.protocol.message import Message

CLUSTER_METADATA_TOPIC_ID = bytes(15) + b"\x01"
TOPIC_IDS_FROM = 13
REPLICA_STATE_FROM = 15


def replica_of(request: Message, version: int) -> tuple[int, int]:
    """Return (node, broker epoch) of the follower that asks; node -1 is a consumer."""
    if version >= REPLICA_STATE_FROM:
        return request.replica_state.replica_id, request.replica_state.replica_epoch
    return request.replica_id, -1


def is_for_metadata_log(request: Message, version: int) -> bool:
    """Return whether it is for the metadata log, which is fetched alone and never in a session."""
    if len(request.topics) != 1:
        return False
    topic = request.topics[0]
    if version >= TOPIC_IDS_FROM:
        return bool(topic.topic_id == CLUSTER_METADATA_TOPIC_ID)
    return bool(topic.topic == CLUSTER_METADATA_TOPIC)


def session_and_partitions(
    sessions: FetchSessionCache, request: Message, version: int, *, follows: bool = False
) -> tuple[FetchSession | None, list[SessionPartition]]:
    """Return the session, if any, and the partitions to read now. Raises BrokerError if client and session disagree.
    `follows`: a follower asks. For its session these are the partitions that the request names (`follower_wakeups`)."""
    uses_ids = version >= TOPIC_IDS_FROM
    named = _named_partitions(request, uses_ids=uses_ids)
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):  # a full request, which ends the session it may name
        if request.session_id:
            sessions.remove(request.session_id)
        if request.session_epoch == FINAL_EPOCH or not named:
            return None, named
        session = sessions.create(uses_topic_ids=uses_ids)
        if session is not None:
            session.is_full_answer = True
            session.partitions = {(each.topic, each.partition): each for each in named}
            if follows:
                session.awake = dict(session.partitions)
        return session, named
    session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=uses_ids)
    for each in named:
        key = each.topic, each.partition
        known = session.partitions.get(key)
        if known is None:
            known = session.partitions[key] = each
        else:
            known.ask_as(each)
        if follows:
            session.awake[key] = known
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if uses_ids else topic.topic
        for partition in topic.partitions:
            session.partitions.pop((key, partition), None)
            session.awake.pop((key, partition), None)
    return session, named if follows else list(session.partitions.values())


def _named_partitions(request: Message, *, uses_ids: bool) -> list[SessionPartition]:
    named = []
    for topic in request.topics:
        key = topic.topic_id if uses_ids else topic.topic
        for each in topic.partitions:
            entry = SessionPartition(key, each.partition)
            entry.fetch_offset = each.fetch_offset
            entry.max_bytes = each.partition_max_bytes
            entry.current_leader_epoch = each.current_leader_epoch
            entry.last_fetched_epoch = each.last_fetched_epoch
            entry.reader_log_start_offset = each.log_start_offset
            named.append(entry)
    return named
